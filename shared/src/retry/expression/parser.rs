//! From the text of a delay expression to its postfix program, by recursive descent.

use super::{EXPRESSION_DEPTH_MAX, ExpressionError, Step};

/// A position in the text and the program so far.
pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    program: Vec<Step>,
}

type Parsed = Result<(), ExpressionError>;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            program: Vec::new(),
        }
    }

    /// The program of the whole text.
    pub(super) fn program(mut self) -> Result<Vec<Step>, ExpressionError> {
        self.sum()?;
        match self.peek() {
            None => Ok(self.program),
            Some(_) => Err(self.unexpected()),
        }
    }

    fn sum(&mut self) -> Parsed {
        self.product()?;
        loop {
            if self.take('+') {
                self.product()?;
                self.program.push(Step::Binary(|x, y| x + y));
            } else if self.take('-') {
                self.product()?;
                self.program.push(Step::Binary(|x, y| x - y));
            } else {
                return Ok(());
            }
        }
    }

    fn product(&mut self) -> Parsed {
        self.operand()?;
        loop {
            if self.take('*') {
                self.operand()?;
                self.program.push(Step::Binary(|x, y| x * y));
            } else if self.take('/') {
                self.operand()?;
                self.program.push(Step::Binary(|x, y| x / y));
            } else {
                return Ok(());
            }
        }
    }

    /// A sign, parentheses, a number or a name; all nesting passes here, so depth is counted here.
    fn operand(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err(ExpressionError::TooDeep);
        }
        if self.take('-') {
            self.operand()?;
            self.program.push(Step::Unary(|x| -x));
        } else if self.take('(') {
            self.sum()?;
            self.require(')')?;
        } else {
            match self.peek() {
                Some(c) if c.is_ascii_digit() || c == '.' => self.number()?,
                Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name()?,
                _ => return Err(self.unexpected()),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn number(&mut self) -> Parsed {
        let at = self.at;
        let mut previous = ' ';
        let text = self.take_while(|c| {
            let is_exponent_sign = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
            previous = c;
            c.is_ascii_alphanumeric() || c == '.' || is_exponent_sign
        });
        let number = text.parse().map_err(|_| ExpressionError::Number { at })?;
        self.program.push(Step::Number(number));
        Ok(())
    }

    fn name(&mut self) -> Parsed {
        let at = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let (takes, call) = match name {
            "retried" => {
                self.program.push(Step::Retried);
                return Ok(());
            }
            "sqrt" => (1, Step::Unary(f64::sqrt)),
            "abs" => (1, Step::Unary(f64::abs)),
            "exp" => (1, Step::Unary(f64::exp)),
            "floor" => (1, Step::Unary(f64::floor)),
            "ceil" => (1, Step::Unary(f64::ceil)),
            "round" => (1, Step::Unary(f64::round)),
            "pow" => (2, Step::Binary(f64::powf)),
            "min" => (2, Step::Binary(f64::min)),
            "max" => (2, Step::Binary(f64::max)),
            _ => return Err(ExpressionError::Name { at }),
        };
        self.require('(')?;
        if self.take(')') {
            return Err(ExpressionError::Arguments { at, takes });
        }
        self.sum()?;
        let mut given = 1;
        while self.take(',') {
            self.sum()?;
            given += 1;
        }
        self.require(')')?;
        if given != takes {
            return Err(ExpressionError::Arguments { at, takes });
        }
        self.program.push(call);
        Ok(())
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next character after white space.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> &'a str {
        let rest = self.rest();
        let (taken, _) = rest.split_at(rest.find(|c| !wanted(c)).unwrap_or(rest.len()));
        self.at += taken.len();
        taken
    }

    fn require(&mut self, wanted: char) -> Parsed {
        if self.take(wanted) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn unexpected(&mut self) -> ExpressionError {
        match self.peek() {
            Some(found) => ExpressionError::Unexpected { at: self.at, found },
            None => ExpressionError::Unfinished,
        }
    }
}
