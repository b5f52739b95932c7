//! The `Upstash-Retry-Delay` expression: arithmetic over `retried` that gives milliseconds.
//!
//! Grammar, loosest first: `+ -`, then `* /`, then unary minus, then a number, `retried`, a call or
//! parentheses. Functions: `pow(x, y) sqrt abs exp floor ceil round min(x, y) max(x, y)`. The text
//! is translated once into a postfix program that has at most one step per byte, so evaluation has
//! no recursion and no loop of its own.

use std::fmt;
use std::time::Duration;

use super::DELAY_MAX;
use parser::Parser;

mod parser;

/// The longest expression, in bytes. It bounds the work of an evaluation, too.
pub const EXPRESSION_BYTES_MAX: usize = 512;

/// How deep parentheses, calls and signs may nest. It bounds the recursion of the parser.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// Why a text is not a delay expression. Positions are in bytes, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// Nothing but white space.
    #[error("the retry delay expression is empty")]
    Empty,
    /// More than [`EXPRESSION_BYTES_MAX`] bytes.
    #[error("the retry delay expression is longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    /// Nested deeper than [`EXPRESSION_DEPTH_MAX`].
    #[error("the retry delay expression nests deeper than {EXPRESSION_DEPTH_MAX} levels")]
    TooDeep,
    /// A character that cannot stand here.
    #[error("the retry delay expression has an unexpected {found:?} at position {at}")]
    Unexpected {
        /// Where.
        at: usize,
        /// The character.
        found: char,
    },
    /// The text stops in the middle.
    #[error("the retry delay expression ends too early")]
    Unfinished,
    /// A number that is malformed.
    #[error("the retry delay expression has a malformed number at position {at}")]
    Number {
        /// Where it starts.
        at: usize,
    },
    /// A name that is neither `retried` nor a function.
    #[error(
        "the retry delay expression has an unknown name at position {at} \
         (known: retried, pow, sqrt, abs, exp, floor, ceil, round, min, max)"
    )]
    Name {
        /// Where it starts.
        at: usize,
    },
    /// A function with too few or too many arguments.
    #[error(
        "the retry delay expression calls a function with the wrong number of arguments at position {at}: it takes {takes}"
    )]
    Arguments {
        /// Where the name of the function starts.
        at: usize,
        /// How many arguments it takes.
        takes: usize,
    },
}

/// A delay expression that is known to be well formed. Equal when the texts are.
#[derive(Clone)]
pub struct Expression {
    text: String,
    program: Vec<Step>,
}

/// One step of the postfix program; operands are on the stack, the last one on top.
#[derive(Clone, Copy)]
enum Step {
    Number(f64),
    Retried,
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
}

impl Expression {
    /// Reads an expression. All that can be wrong with it is found here; evaluation cannot fail.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::TooLong);
        }
        if text.trim().is_empty() {
            return Err(ExpressionError::Empty);
        }
        Ok(Self {
            text: text.to_owned(),
            program: Parser::new(text).program()?,
        })
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The delay before the next attempt when `retried` retries were made before the one that just
    /// failed (0 before the first retry). A result that is negative or not a number is no delay;
    /// one above [`DELAY_MAX`] is that.
    pub fn delay(&self, retried: u32) -> Duration {
        let seconds = self.evaluate(f64::from(retried)) / 1_000.0;
        if seconds.is_nan() || seconds <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(seconds.min(DELAY_MAX.as_secs_f64())).unwrap_or(DELAY_MAX)
    }

    /// An operand that is missing, which the parser rules out, counts as not a number.
    fn evaluate(&self, retried: f64) -> f64 {
        let mut stack = Vec::with_capacity(self.program.len());
        for step in &self.program {
            let mut operand = || stack.pop().unwrap_or(f64::NAN);
            let value = match step {
                Step::Number(number) => *number,
                Step::Retried => retried,
                Step::Unary(function) => function(operand()),
                Step::Binary(function) => {
                    let right = operand();
                    function(operand(), right)
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(f64::NAN)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delay_ms(text: &str, retried: u32) -> u128 {
        let expression = Expression::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        expression.delay(retried).as_millis()
    }

    #[test]
    fn expressions_in_the_wild_give_their_milliseconds() {
        for (text, expected) in [
            ("1000", [1_000, 1_000, 1_000]),
            ("15000", [15_000, 15_000, 15_000]),
            ("1000 * (1 + retried)", [1_000, 2_000, 3_000]),
            ("pow(2, retried) * 1000", [1_000, 2_000, 4_000]),
            ("7000 * retried", [0, 7_000, 14_000]),
            ("max(1000, pow(2, retried) * 1000)", [1_000, 2_000, 4_000]),
            ("min(1500, 1000*(retried+1))", [1_000, 1_500, 1_500]),
            (
                "exp(2.5 * (retried + 1)) * 1000",
                [12_182, 148_413, 1_808_042],
            ),
            ("sqrt(retried) * 1000", [0, 1_000, 1_414]),
            (
                "floor(retried / 2) * 10 + ceil(retried/2) + round(0.5)",
                [1, 2, 12],
            ),
            ("abs(-5 - retried)", [5, 6, 7]),
            ("-(-3)", [3, 3, 3]),
            ("2 - -3 * 2", [8, 8, 8]),
            ("8 / 2 / 2 - 1 - 1", [0, 0, 0]),
            ("1e3 + 2.5E+2 + .5e1", [1_255, 1_255, 1_255]),
            ("\t1 +\n2 ", [3, 3, 3]),
            ("7001", [7_001, 7_001, 7_001]),
        ] {
            let got = [0, 1, 2].map(|retried| delay_ms(text, retried));
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn a_result_without_sense_is_held_between_nothing_and_a_day() {
        let day = DELAY_MAX.as_millis();
        for (text, expected) in [
            ("0 / 0", 0),
            ("sqrt(-1)", 0),
            ("-1", 0),
            ("-1 / 0", 0),
            ("1 / 0", day),
            ("1e999", day),
            ("pow(10, 300)", day),
            ("86400000", day),
            ("86400001", day),
            ("86399999", day - 1),
            ("max(0/0, 5)", 5),
        ] {
            assert_eq!(delay_ms(text, 0), expected, "{text}");
        }
    }

    #[test]
    fn r10_an_expression_never_overflows_for_any_number_of_retries() {
        let doubling = Expression::parse("1000 * pow(2, retried)").unwrap();
        let delays: Vec<Duration> = (0..=1_000)
            .chain([u32::MAX])
            .map(|retried| doubling.delay(retried))
            .collect();
        assert!(delays.is_sorted());
        assert_eq!(delays.get(22), Some(&DELAY_MAX));
        assert_eq!(delays.last(), Some(&DELAY_MAX));
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_place() {
        use ExpressionError as E;
        for (text, expected) in [
            ("", E::Empty),
            ("  ", E::Empty),
            ("1 +", E::Unfinished),
            ("(1", E::Unfinished),
            ("pow(2", E::Unfinished),
            ("pow", E::Unfinished),
            ("1 2", E::Unexpected { at: 2, found: '2' }),
            ("1)", E::Unexpected { at: 1, found: ')' }),
            ("*1", E::Unexpected { at: 0, found: '*' }),
            ("+1", E::Unexpected { at: 0, found: '+' }),
            ("2 ^ 3", E::Unexpected { at: 2, found: '^' }),
            ("2 ** 3", E::Unexpected { at: 3, found: '*' }),
            ("1;1", E::Unexpected { at: 1, found: ';' }),
            ("é", E::Unexpected { at: 0, found: 'é' }),
            ("pow 2", E::Unexpected { at: 4, found: '2' }),
            ("retried()", E::Unexpected { at: 7, found: '(' }),
            ("1.2.3", E::Number { at: 0 }),
            ("2 * 5s", E::Number { at: 4 }),
            ("0x10", E::Number { at: 0 }),
            (".", E::Number { at: 0 }),
            ("retires * 2", E::Name { at: 0 }),
            ("1 + Retried", E::Name { at: 4 }),
            ("inf", E::Name { at: 0 }),
            ("process.exit()", E::Name { at: 0 }),
            ("pow(2)", E::Arguments { at: 0, takes: 2 }),
            ("pow(1,2,3)", E::Arguments { at: 0, takes: 2 }),
            ("1+sqrt()", E::Arguments { at: 2, takes: 1 }),
            ("abs(1,2)", E::Arguments { at: 0, takes: 1 }),
        ] {
            assert_eq!(Expression::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn length_and_depth_are_bounded() {
        use ExpressionError as E;
        let sum = "1+".repeat(255) + "1";
        assert_eq!(delay_ms(&sum, 0), 256);
        assert_eq!(Expression::parse(&(sum + "+1")), Err(E::TooLong));
        let nested = |depth| "(".repeat(depth) + "1" + &")".repeat(depth);
        assert_eq!(delay_ms(&nested(EXPRESSION_DEPTH_MAX - 1), 0), 1);
        assert_eq!(
            Expression::parse(&nested(EXPRESSION_DEPTH_MAX)),
            Err(E::TooDeep)
        );
        for opening in ["-", "(", "abs("] {
            let deep = opening.repeat(100) + "1";
            assert_eq!(Expression::parse(&deep), Err(E::TooDeep), "{opening}");
        }
    }

    #[test]
    fn the_text_is_kept_as_written() {
        let text = " pow(2,retried) *1000 ";
        assert_eq!(Expression::parse(text).unwrap().as_str(), text);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_delay_passes_a_day(
            text in "[0-9a-z+*/().,e -]{0,60}|.{0,40}", retried in any::<u32>(),
        ) {
            if let Ok(expression) = Expression::parse(&text) {
                prop_assert!(expression.delay(retried) <= DELAY_MAX);
            }
        }

        #[test]
        fn arithmetic_follows_the_usual_precedence(a in 0_u32..999, b in 0_u32..999, c in 1_u32..999) {
            let product = u128::from(a) + u128::from(b) * u128::from(c);
            prop_assert_eq!(delay_ms(&format!("{a}+{b}*{c}"), 0), product);
            let product = (u128::from(a) + u128::from(b)) * u128::from(c);
            prop_assert_eq!(delay_ms(&format!("({a}+{b})*{c}"), 0), product);
            let quotient = u128::from(a * c) / u128::from(c);
            prop_assert_eq!(delay_ms(&format!("{a} * {c} / {c}"), 0), quotient);
        }
    }
}
