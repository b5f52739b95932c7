//! Glob patterns of `MATCH`: `*`, `?`, `[a-z]`, `[^a]`, `\x`.

/// Whether all of `text` matches `pattern`. Takes at most `pattern` times `text` steps.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut rest, mut left) = (pattern, text);
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = rest {
            retry = Some((after, left));
            rest = after;
            continue;
        }
        if rest.is_empty() && left.is_empty() {
            return true;
        }
        if let Some(next) = match_one(rest, left) {
            (rest, left) = next;
            continue;
        }
        match retry {
            Some((after, [_, skipped @ ..])) => {
                retry = Some((after, skipped));
                (rest, left) = (after, skipped);
            }
            _ => return false,
        }
    }
}

/// What is left of both after one byte matched one element.
fn match_one<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (&byte, left) = text.split_first()?;
    match pattern {
        [b'?', rest @ ..] => Some((rest, left)),
        [b'[', rest @ ..] => match_class(rest, byte).map(|rest| (rest, left)),
        [b'\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
            (*wanted == byte).then_some((rest, left))
        }
        [] => None,
    }
}

/// The pattern after a class whose text starts after `[`, when the class holds `byte`.
fn match_class(class: &[u8], byte: u8) -> Option<&[u8]> {
    let negated = class.first() == Some(&b'^');
    let mut rest = class.get(usize::from(negated)..).unwrap_or_default();
    let mut found = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', one, after @ ..] => {
                found |= *one == byte;
                after
            }
            [low, b'-', high, after @ ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [one, after @ ..] => {
                found |= *one == byte;
                after
            }
        };
    }
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("abc", "ab", false),
            ("", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                want,
                "{pattern} {text}"
            );
        }
    }
}
