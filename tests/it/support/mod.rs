//! Equipment of the tests: real servers, a receiver, the program itself, a proxy between them.

pub(crate) mod cost;
pub(crate) mod front_door;
pub(crate) mod hook_actor;
pub(crate) mod load;
pub(crate) mod meter;
pub(crate) mod name_server;
pub(crate) mod openapi;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod redis;
pub(crate) mod redis_groups;
pub(crate) mod scene;
pub(crate) mod seam_actor;
pub(crate) mod stage;
pub(crate) mod told;

/// To be called before a test listens to the log of its thread: what is logged first on another
/// thread, where nobody listens, would else be taken for what nobody ever listens to.
pub(crate) fn listen_everywhere() {
    static EVERYWHERE: std::sync::Once = std::sync::Once::new();
    EVERYWHERE.call_once(|| {
        let everything = tracing_subscriber::registry();
        tracing::subscriber::set_global_default(everything).expect("nobody else sets it");
    });
}
