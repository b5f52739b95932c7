//! Writing a pattern for the engine that matches it.

use std::fmt::Write as _;

use super::parse::Node;
use super::set::Set;
use super::units::code_point;

/// Ends of ranges between which the numbering of characters jumps: before, in and after the
/// surrogates.
const SEGMENTS: [(u16, u16); 3] = [(0, 0xd7ff), (0xd800, 0xdfff), (0xe000, u16::MAX)];

/// For `regex`.
pub(super) fn for_linear(node: &Node) -> String {
    let mut out = String::new();
    let boundaries = [r"(?-u:\b)", r"(?-u:\B)"];
    write_node(node, &boundaries, &mut out);
    out
}

/// For `fancy-regex`, whose own word boundaries follow Unicode.
pub(super) fn for_backtracking(node: &Node) -> String {
    const WORD: &str = "[0-9A-Z_a-z]";
    let (before, after) = (format!("(?<={WORD})"), format!("(?={WORD})"));
    let (not_before, not_after) = (format!("(?<!{WORD})"), format!("(?!{WORD})"));
    let boundary = format!("(?:{before}{not_after}|{not_before}{after})");
    let not_boundary = format!("(?:{before}{after}|{not_before}{not_after})");
    let mut out = String::new();
    write_node(node, &[&boundary, &not_boundary], &mut out);
    out
}

fn write_node(node: &Node, boundaries: &[&str; 2], out: &mut String) {
    let [boundary, not_boundary] = *boundaries;
    match node {
        Node::Empty => out.push_str("(?:)"),
        Node::Unit(set) => write_set(set, out),
        Node::Start => out.push_str(r"\A"),
        Node::End => out.push_str(r"\z"),
        Node::Boundary => out.push_str(boundary),
        Node::NotBoundary => out.push_str(not_boundary),
        Node::Group { number, inner } => {
            let _ = write!(out, "(?<g{number}>");
            write_node(inner, boundaries, out);
            out.push(')');
        }
        Node::Look {
            is_ahead,
            is_negative,
            inner,
        } => {
            out.push_str(match (is_ahead, is_negative) {
                (true, false) => "(?=",
                (true, true) => "(?!",
                (false, false) => "(?<=",
                (false, true) => "(?<!",
            });
            write_node(inner, boundaries, out);
            out.push(')');
        }
        // A group that took no part matches the empty text.
        Node::Back { number, .. } => {
            let _ = write!(out, r"(?(<g{number}>)\k<g{number}>|)");
        }
        Node::Repeat {
            min,
            max,
            is_greedy,
            inner,
        } => {
            out.push_str("(?:");
            write_node(inner, boundaries, out);
            let _ = match max {
                Some(max) => write!(out, "){{{min},{max}}}"),
                None => write!(out, "){{{min},}}"),
            };
            if !is_greedy {
                out.push('?');
            }
        }
        Node::Sequence(parts) => parts
            .iter()
            .for_each(|part| write_node(part, boundaries, out)),
        Node::Choice(parts) => {
            out.push_str("(?:");
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    out.push('|');
                }
                write_node(part, boundaries, out);
            }
            out.push(')');
        }
    }
}

fn write_set(set: &Set, out: &mut String) {
    if set.ranges().is_empty() {
        // Nothing: a unit that is and is not one.
        out.push_str(r"[^\x{0}-\x{10FFFF}]");
        return;
    }
    out.push('[');
    for (first, last) in set.ranges() {
        for (start, end) in SEGMENTS {
            let (first, last) = ((*first).max(start), (*last).min(end));
            if first <= last {
                let (first, last) = (code_point(first), code_point(last));
                let _ = write!(out, r"\x{{{first:X}}}-\x{{{last:X}}}");
            }
        }
    }
    out.push(']');
}
