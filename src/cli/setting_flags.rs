//! The flags of the settings, made from their table.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use hookstash_shared::config::{ConfigError, Kind, Overrides, SETTINGS, Setting, Settings};
use hookstash_shared::environment::Environment;

/// Every setting that may stand on a command line, as given there.
#[derive(Default, Clone)]
pub(super) struct SettingFlags(Overrides);

impl SettingFlags {
    /// Sets one in the name of a command's own flag.
    pub(super) fn set(&mut self, setting: &Setting, value: impl Into<String>) {
        self.0.set(setting, value);
    }

    /// The settings of this process: these flags, else the environment, else the defaults.
    pub(super) fn read(&self, environment: &dyn Environment) -> Result<Settings, ConfigError> {
        Settings::from_environment(environment, &self.0)
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in SETTINGS.iter().filter(|setting| setting.flag().is_some()) {
            if let Some(value) = matches.get_one::<String>(setting.name()) {
                self.set(setting, value);
            }
        }
        Ok(())
    }
}

/// The end of a command's long help: its examples, then the settings that no flag sets.
pub(super) fn after_help(examples: &str) -> String {
    let secrets = SETTINGS
        .iter()
        .filter(|setting| setting.kind == Kind::Secret);
    let lines = secrets.map(|setting| {
        let meaning = setting.meaning.replace('`', "");
        format!("  {}\n          {meaning}\n", setting.names.join(", "))
    });
    let heading = "Secrets (environment only, because others can see a command line):\n";
    std::iter::once(format!("{examples}\n\n{heading}"))
        .chain(lines)
        .collect()
}

fn flag(setting: &Setting) -> Option<Arg> {
    let flag = setting.flag()?;
    let meaning = setting.meaning.replace('`', "");
    let variables = setting.names.join(", ");
    let default = setting.default.filter(|text| !text.is_empty());
    let default = default.map_or_else(String::new, |text| format!(" [default: {text}]"));
    Some(
        Arg::new(setting.name())
            .long(flag.trim_start_matches('-').to_owned())
            .value_name(value_name(setting.kind))
            .help(format!("{meaning} [env: {variables}]{default}"))
            .help_heading("Settings")
            .hide_short_help(!is_usual(setting))
            .allow_hyphen_values(true),
    )
}

/// Whether the setting is shown by `-h`; `--help` shows all.
fn is_usual(setting: &Setting) -> bool {
    let usual = [
        "HOOKSTASH_REDIS_URL",
        "HOOKSTASH_DATA_DIR",
        "HOOKSTASH_LISTEN",
        "HOOKSTASH_SLOTS",
        "HOOKSTASH_LOG",
    ];
    usual.contains(&setting.name())
}

fn value_name(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Secret => "TEXT".to_owned(),
        Kind::Url => "URL".to_owned(),
        Kind::Address => "ADDRESS:PORT".to_owned(),
        Kind::Path => "DIRECTORY".to_owned(),
        Kind::Choice(words) => words.join("|"),
        Kind::Count(..) => "NUMBER".to_owned(),
        Kind::Duration(..) => "DURATION".to_owned(),
        Kind::Size(..) => "SIZE".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(after_long_help = after_help("Examples:"))]
    struct Program {
        #[command(flatten)]
        settings: SettingFlags,
    }

    #[test]
    fn every_setting_is_a_flag_or_a_secret_and_the_long_help_names_it() {
        use clap::CommandFactory as _;
        let mut command = Program::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        for setting in SETTINGS {
            assert!(help.contains(setting.name()), "{}", setting.name());
            match setting.flag() {
                Some(flag) => assert!(help.contains(&format!("{flag} <")), "{flag}"),
                None => assert_eq!(setting.kind, Kind::Secret),
            }
        }
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        let program = Program::try_parse_from(["x", "--slots", "7", "--lease=20s"]).unwrap();
        let environment = [("HOOKSTASH_SLOTS", "8"), ("HOOKSTASH_BATCH", "9")];
        let environment: BTreeMap<String, String> = environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let settings = program.settings.read(&environment).unwrap();
        assert_eq!((settings.slots, settings.batch), (7, 9));
        assert_eq!(settings.lease.as_secs(), 20);
    }

    #[test]
    fn a_wrong_flag_is_named_and_its_value_is_not_repeated() {
        for (args, name) in [
            (["x", "--slots", "-5"], "--slots"),
            (["x", "--lease", ""], "--lease"),
            (["x", "--redis-url", "canary"], "--redis-url"),
        ] {
            let flags = Program::try_parse_from(args).unwrap().settings;
            let error = flags.read(&BTreeMap::new()).unwrap_err().to_string();
            assert!(
                error.starts_with(name) && !error.contains("canary"),
                "{error}"
            );
        }
    }
}
