//! The process environment as an argument.

use std::collections::BTreeMap;

/// Where variables are read from. Asked at every use, never cached, because header templates and
/// environment hooks must see the current value.
pub trait Environment: Send + Sync + 'static {
    /// The value of `name`; `None` when it is unset or not valid Unicode.
    fn get(&self, name: &str) -> Option<String>;

    /// Whether `name` is set, also to a value that is not valid Unicode and that [`Self::get`]
    /// therefore does not return.
    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All names that are set, sorted.
    fn names(&self) -> Vec<String>;
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    fn is_set(&self, name: &str) -> bool {
        std::env::var_os(name).is_some()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .collect();
        names.sort();
        names
    }
}

/// A fixed set of variables.
impl Environment for BTreeMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        BTreeMap::get(self, name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}
