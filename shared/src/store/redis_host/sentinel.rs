//! Asking sentinels where the master is.

use futures::future::select_ok;
use redis::{ConnectionInfo, RedisConnectionInfo};

use super::connect::{RedisOptions, open};
use super::errors::ConnectError;
use super::url::{moved_to, server_name};

/// Where `master` is, from the first sentinel that knows. All are asked at once, with `login`.
pub(super) async fn master(
    sentinels: &[ConnectionInfo],
    login: &RedisConnectionInfo,
    master: &str,
    options: &RedisOptions,
) -> Result<ConnectionInfo, ConnectError> {
    let asked = sentinels
        .iter()
        .map(|sentinel| Box::pin(ask(sentinel, login, master, options)));
    select_ok(asked).await.map(|(server, _)| server)
}

async fn ask(
    sentinel: &ConnectionInfo,
    login: &RedisConnectionInfo,
    master: &str,
    options: &RedisOptions,
) -> Result<ConnectionInfo, ConnectError> {
    let asked = sentinel.clone().set_redis_settings(login.clone());
    let mut live = open(&asked, options, Some(options.response_timeout)).await?;
    let address: Option<(String, u16)> = redis::cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(master)
        .query_async(&mut live.connection)
        .await
        .map_err(|error| ConnectError::from_login(&server_name(sentinel), None, &error))?;
    match address {
        Some((host, port)) => Ok(moved_to(sentinel, &host, port)),
        None => Err(ConnectError::Refused {
            server: server_name(sentinel),
            reason: format!("this sentinel does not know the master {master}"),
        }),
    }
}
