//! `hookstash dlq delete`.

use std::process::ExitCode;

use clap::Args;
use hookstash_shared::environment::Environment;
use http::Method;
use serde_json::json;

use super::{Common, EMPTY};
use crate::cli::failure::Failure;
use crate::cli::remote::{Done, Named, check_id, conclude};

/// Delete dead letters for good
#[derive(Args)]
pub(super) struct Delete {
    #[command(flatten)]
    common: Common,
    /// Their ids, as `hookstash dlq list` shows them
    #[arg(required = true)]
    ids: Vec<String>,
}

impl Delete {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let mut done = Vec::new();
        for id in &self.ids {
            let path = format!("/v2/dlq/{}", check_id(id)?);
            let answer = server.ask(Method::DELETE, &path).await;
            let result =
                answer.and_then(|answer| answer.success().map(|_| json!({ "deleted": 1 })));
            done.push(Done {
                id: id.clone(),
                result,
            });
        }
        conclude(
            self.common.output,
            Named::DeadLetter,
            "Deleted",
            EMPTY,
            done,
        )
    }
}
