//! The settings as text: for `--help` and for `docs/configuration.md`.

use super::size;
use super::table::{Kind, SETTINGS, Setting};
use crate::duration;

const INTRODUCTION: &str = "\
# Configuration

This page is made from the table in `shared/src/config/table.rs`; a test keeps the two equal.

A value comes from the command line, else from the variable named first, else from the variable
named after it. A secret has no flag, because others can see a command line.

The process does not start when a value cannot be used or is blank (unless its default is empty),
when a secret still holds a placeholder such as `change-me`, or when a variable begins with
`HOOKSTASH_` and is not listed here; the message names the setting. Variables that Kubernetes adds
for Services named `hookstash…` are ignored.

- **Duration**: numbers with units, `1d10h30m`, `1.5s`, `250ms`, or a number of seconds. Units: `ms`,
  `s`, `m`, `h`, `d`. Never negative.
- **Size**: a whole number of bytes, or of `B`, `KiB`, `MiB` or `GiB`.
- **Secret**: visible ASCII characters, with no blank in or around it. Never shown or logged.

| Variable | Flag | Value | Default | Meaning |
|---|---|---|---|---|
";

/// The page `docs/configuration.md`.
pub fn markdown() -> String {
    let rows = SETTINGS.iter().map(markdown_row);
    std::iter::once(INTRODUCTION.to_owned())
        .chain(rows)
        .collect()
}

/// The section on variables for `--help`.
pub fn help() -> String {
    let lines = SETTINGS.iter().map(|setting| {
        let default = setting.default.filter(|default| !default.is_empty());
        let default = default.map_or_else(String::new, |text| format!(" [default: {text}]"));
        let meaning = setting.meaning.replace('`', "");
        format!(
            "  {}\n          {meaning}{default}\n",
            setting.names.join(", ")
        )
    });
    std::iter::once("Environment:\n".to_owned())
        .chain(lines)
        .collect()
}

fn markdown_row(setting: &Setting) -> String {
    let code = |text: &str| format!("`{text}`");
    let names: Vec<_> = setting.names.iter().map(|name| code(name)).collect();
    let flag = setting
        .flag()
        .map_or_else(|| "–".to_owned(), |flag| code(&flag));
    let default = match setting.default {
        None => "–".to_owned(),
        Some("") => "empty".to_owned(),
        Some(text) => code(text),
    };
    format!(
        "| {} | {flag} | {} | {default} | {} |\n",
        names.join(", "),
        value(setting.kind),
        setting.meaning
    )
}

fn value(kind: Kind) -> String {
    let span = |ms| duration::display(std::time::Duration::from_millis(ms)).to_string();
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Url => "URL".to_owned(),
        Kind::Address => "address and port".to_owned(),
        Kind::Path => "directory".to_owned(),
        Kind::Choice(words) => format!("`{}`", words.join("` or `")),
        Kind::Count(min, max) => format!("{min} to {max}"),
        Kind::Duration(min, max) => format!("duration, {} to {}", span(min), span(max)),
        Kind::Size(min, max) => format!("size, {} to {}", size::format(min), size::format(max)),
        Kind::Secret => "secret".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_page_is_the_generated_text() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let written = std::fs::read_to_string(page).unwrap_or_default();
        if written != markdown() {
            let fresh = std::env::temp_dir().join("configuration.md");
            std::fs::write(&fresh, markdown()).unwrap();
            panic!(
                "docs/configuration.md is out of date; copy {} over it",
                fresh.display()
            );
        }
    }

    #[test]
    fn help_names_every_setting() {
        let help = help();
        for name in SETTINGS.iter().flat_map(|setting| setting.names) {
            assert!(help.contains(name), "{name}");
        }
    }

    #[test]
    fn no_cell_breaks_the_table() {
        let rows = markdown();
        let rows = rows.lines().filter(|line| line.starts_with('|'));
        assert!(rows.clone().count() > SETTINGS.len());
        for row in rows {
            assert_eq!(row.matches('|').count(), 6, "{row}");
        }
    }
}
