//! Makes a tree of tokens: one function per level of precedence.
//!
//! What always holds: the recursion is at most [`MAX_DEPTH`] parentheses and signs deep, and so
//! is the tree, whose operators may also pile up to the left (`a = b = c`).

use super::ast::{Node, OrderOperator, Place, Slot};
use super::error::{Fault, shorten};
use super::evaluate::decimal;
use super::lexer::{Keyword, Lexer, Token};
use super::{MAX_DEPTH, MAX_LENGTH, MAX_NAMES};

/// A node, where its text begins, and how many levels it has.
struct Part {
    node: Node,
    at: usize,
    depth: usize,
}

/// Parses a whole text into a condition and the property names in it.
pub(super) fn parse(text: &str) -> Result<(Node, Vec<Box<str>>), Fault> {
    if text.len() > MAX_LENGTH {
        let length = text.len();
        return Err(Fault::new(
            0,
            format!("the expression has {length} bytes, the limit is {MAX_LENGTH}"),
        ));
    }
    let mut lexer = Lexer::new(text);
    let (token, at) = lexer.next()?;
    let mut parser = Parser { lexer, token, at, nesting: 0, names: Vec::new() };
    let whole = parser.any()?;
    let node = condition(whole)?;
    if parser.token != Token::End {
        return Err(parser.expected("an operator, AND, OR or the end"));
    }
    Ok((node, parser.names))
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token to look at next, and where it begins.
    token: Token<'a>,
    at: usize,
    /// Parentheses and signs that are open.
    nesting: usize,
    names: Vec<Box<str>>,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<(), Fault> {
        (self.token, self.at) = self.lexer.next()?;
        Ok(())
    }

    /// Takes the token if it is this one.
    fn accept(&mut self, token: Token<'_>) -> Result<bool, Fault> {
        let there = self.token == token;
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn require(&mut self, token: Token<'_>) -> Result<(), Fault> {
        if self.accept(token)? {
            return Ok(());
        }
        Err(self.expected(&token.describe()))
    }

    fn expected(&self, what: &str) -> Fault {
        let found = self.token.describe();
        let advice = match self.token {
            Token::Name(word) if word.eq_ignore_ascii_case("LIKE") => {
                "; there is no LIKE, use CONTAINS, STARTSWITH or ENDSWITH"
            }
            _ => "",
        };
        Fault::new(self.at, format!("expected {what}, found {found}{advice}"))
    }

    fn any(&mut self) -> Result<Part, Fault> {
        self.junction(Keyword::Or, Self::all, Node::Any)
    }

    fn all(&mut self) -> Result<Part, Fault> {
        self.junction(Keyword::And, Self::equality, Node::All)
    }

    /// Terms with one keyword between them; a single term stays as it is.
    fn junction(
        &mut self,
        keyword: Keyword,
        term: fn(&mut Self) -> Result<Part, Fault>,
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Part, Fault> {
        let first = term(self)?;
        if self.token != Token::Keyword(keyword) {
            return Ok(first);
        }
        let (at, mut depth) = (first.at, first.depth);
        let mut terms = vec![condition(first)?];
        while self.accept(Token::Keyword(keyword))? {
            let next = term(self)?;
            depth = depth.max(next.depth);
            terms.push(condition(next)?);
        }
        deeper(join(terms), at, depth)
    }

    fn equality(&mut self) -> Result<Part, Fault> {
        let mut left = self.comparison()?;
        loop {
            let at = left.at;
            match self.token {
                Token::Symbol(symbol @ ("=" | "<>")) => {
                    self.advance()?;
                    let right = self.comparison()?;
                    check_equal(&left, &right)?;
                    let depth = left.depth.max(right.depth);
                    let node = Node::Equal(Box::new([left.node, right.node]));
                    left = negated_if(symbol == "<>", deeper(node, at, depth)?)?;
                }
                Token::Keyword(Keyword::Is) => {
                    self.advance()?;
                    let negated = self.accept(Token::Keyword(Keyword::Not))?;
                    self.require(Token::Keyword(Keyword::Null))?;
                    let node = Node::IsNull(Box::new(left.node));
                    left = negated_if(negated, deeper(node, at, left.depth)?)?;
                }
                _ => return Ok(left),
            }
        }
    }

    fn comparison(&mut self) -> Result<Part, Fault> {
        let mut left = self.unary()?;
        loop {
            if let Token::Symbol(symbol) = self.token
                && let Some(operator) = OrderOperator::of(symbol)
            {
                self.advance()?;
                let right = self.unary()?;
                check_ordered(&left)?;
                check_ordered(&right)?;
                let (at, depth) = (left.at, left.depth.max(right.depth));
                let node = Node::Order(operator, Box::new([left.node, right.node]));
                left = deeper(node, at, depth)?;
                continue;
            }
            let negated = self.accept(Token::Keyword(Keyword::Not))?;
            left = match self.token {
                Token::Keyword(Keyword::Contains) => self.search(left, Place::Anywhere, negated)?,
                Token::Keyword(Keyword::StartsWith) => self.search(left, Place::Start, negated)?,
                Token::Keyword(Keyword::EndsWith) => self.search(left, Place::End, negated)?,
                Token::Keyword(Keyword::Between) => self.between(left, negated)?,
                Token::Keyword(Keyword::In) => self.one_of(left, negated)?,
                _ if negated => {
                    return Err(self.expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"));
                }
                _ => return Ok(left),
            };
        }
    }

    fn search(&mut self, value: Part, place: Place, negated: bool) -> Result<Part, Fault> {
        self.advance()?;
        let text = self.text()?;
        let node = Node::Search { value: Box::new(value.node), place, text, negated };
        deeper(node, value.at, value.depth)
    }

    fn between(&mut self, value: Part, negated: bool) -> Result<Part, Fault> {
        self.advance()?;
        let low = self.unary()?;
        self.require(Token::Keyword(Keyword::And))?;
        let high = self.unary()?;
        for part in [&value, &low, &high] {
            check_ordered(part)?;
        }
        if !negated && is_above(&low.node, &high.node) {
            return Err(Fault::new(
                low.at,
                "the lower bound of BETWEEN is above the upper bound, nothing can match",
            ));
        }
        let depth = value.depth.max(low.depth).max(high.depth);
        let operands = Box::new([value.node, low.node, high.node]);
        deeper(Node::Between { operands, negated }, value.at, depth)
    }

    fn one_of(&mut self, value: Part, negated: bool) -> Result<Part, Fault> {
        let Node::Property(slot) = value.node else {
            return Err(Fault::new(value.at, "only a property can stand before IN"));
        };
        self.advance()?;
        self.require(Token::Symbol("("))?;
        let mut list = vec![self.text()?];
        while self.accept(Token::Symbol(","))? {
            list.push(self.text()?);
        }
        self.require(Token::Symbol(")"))?;
        list.sort_unstable();
        list.dedup();
        let node = Node::In { slot, list: list.into(), negated };
        deeper(node, value.at, value.depth)
    }

    fn unary(&mut self) -> Result<Part, Fault> {
        let at = self.at;
        let (Token::Symbol("+" | "-" | "(") | Token::Keyword(Keyword::Not)) = self.token else {
            return self.primary();
        };
        self.nesting += 1;
        check_depth(self.nesting, at)?;
        let opening = self.token;
        self.advance()?;
        let part = match opening {
            Token::Symbol("(") => {
                let inner = self.any()?;
                self.require(Token::Symbol(")"))?;
                Part { at, ..inner }
            }
            Token::Symbol("-") => {
                let inner = self.unary()?;
                deeper(Node::Negate(Box::new(inner.node)), at, inner.depth)?
            }
            Token::Keyword(_) => {
                let inner = self.unary()?;
                let depth = inner.depth;
                let node = condition(inner)?;
                deeper(Node::Not(Box::new(node)), at, depth)?
            }
            _ => self.unary()?,
        };
        self.nesting -= 1;
        Ok(part)
    }

    fn primary(&mut self) -> Result<Part, Fault> {
        let at = self.at;
        let node = match self.token {
            Token::Name(name) => Node::Property(self.slot(name)?),
            Token::Text(_) => Node::Text(self.unquoted()),
            Token::Integer(digits) => Node::Integer(digits.parse().map_err(|_| {
                let number = shorten(digits);
                Fault::new(at, format!("{number} is too large, the limit is {}", i64::MAX))
            })?),
            Token::Decimal(digits) => Node::Double(double(digits, at)?),
            Token::Keyword(Keyword::True) => Node::Truth(Some(true)),
            Token::Keyword(Keyword::False) => Node::Truth(Some(false)),
            Token::Keyword(Keyword::Null) => Node::Truth(None),
            _ => return Err(self.expected("a property, a literal, NOT, a sign or \"(\"")),
        };
        self.advance()?;
        Ok(Part { node, at, depth: 0 })
    }

    /// A text in quotes, where only that is possible.
    fn text(&mut self) -> Result<Box<str>, Fault> {
        let Token::Text(_) = self.token else {
            return Err(self.expected("a text in single quotes"));
        };
        let text = self.unquoted();
        self.advance()?;
        Ok(text)
    }

    fn unquoted(&self) -> Box<str> {
        match self.token {
            Token::Text(text) => text.replace("''", "'").into(),
            _ => Box::default(),
        }
    }

    fn slot(&mut self, name: &str) -> Result<Slot, Fault> {
        if let Some(slot) = self.names.iter().position(|known| **known == *name) {
            return Ok(slot);
        }
        if self.names.len() == MAX_NAMES {
            return Err(Fault::new(
                self.at,
                format!("the expression names more than {MAX_NAMES} properties"),
            ));
        }
        self.names.push(name.into());
        Ok(self.names.len() - 1)
    }
}

/// A node over parts of this depth.
fn deeper(node: Node, at: usize, depth: usize) -> Result<Part, Fault> {
    check_depth(depth + 1, at)?;
    Ok(Part { node, at, depth: depth + 1 })
}

fn negated_if(negated: bool, part: Part) -> Result<Part, Fault> {
    if !negated {
        return Ok(part);
    }
    deeper(Node::Not(Box::new(part.node)), part.at, part.depth)
}

fn check_depth(depth: usize, at: usize) -> Result<(), Fault> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Fault::new(at, format!("the expression is nested deeper than {MAX_DEPTH} levels")))
}

/// The part where a condition is asked for.
fn condition(part: Part) -> Result<Node, Fault> {
    match part.node {
        Node::Property(slot) => Ok(Node::Presence(slot)),
        node if node.is_condition() => Ok(node),
        _ => Err(Fault::new(part.at, "expected a condition, such as a comparison, found a value")),
    }
}

fn check_equal(left: &Part, right: &Part) -> Result<(), Fault> {
    for part in [left, right] {
        if part.node == Node::Truth(None) {
            return Err(Fault::new(part.at, "NULL cannot be compared; use IS NULL or IS NOT NULL"));
        }
    }
    let truth_beside_other =
        matches!(left.node, Node::Truth(_)) && !matches!(right.node, Node::Truth(_));
    if truth_beside_other && right.node.is_literal() {
        return Err(Fault::new(
            left.at,
            "TRUE and FALSE cannot be compared with a number or a text",
        ));
    }
    Ok(())
}

fn check_ordered(part: &Part) -> Result<(), Fault> {
    if matches!(part.node, Node::Text(_)) {
        return Err(Fault::new(
            part.at,
            "texts have no order; <, <=, >, >= and BETWEEN compare numbers and properties",
        ));
    }
    if part.node.is_condition() {
        return Err(Fault::new(
            part.at,
            "a condition has no order; <, <=, >, >= and BETWEEN compare numbers and properties \
             (NOT binds tighter than they do)",
        ));
    }
    Ok(())
}

/// Whether both are literals and the left number is larger.
fn is_above(left: &Node, right: &Node) -> bool {
    match (left, right) {
        (Node::Integer(left), Node::Integer(right)) => left > right,
        (Node::Integer(left), Node::Double(right)) => *left as f64 > *right,
        (Node::Double(left), Node::Integer(right)) => *left > *right as f64,
        (Node::Double(left), Node::Double(right)) => left > right,
        _ => false,
    }
}

fn double(digits: &str, at: usize) -> Result<f64, Fault> {
    let value = decimal(digits).unwrap_or(f64::INFINITY);
    let number = shorten(digits);
    if value.is_infinite() {
        let problem = format!("{number} is too large, the limit is {:e}", f64::MAX);
        return Err(Fault::new(at, problem));
    }
    let mut mantissa = digits.split(['e', 'E']).next().unwrap_or_default().bytes();
    if value == 0.0 && mantissa.any(|byte| matches!(byte, b'1'..=b'9')) {
        let problem = format!("{number} is too small to be told from 0");
        return Err(Fault::new(at, problem));
    }
    Ok(value)
}
