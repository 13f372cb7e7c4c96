//! SQL's LIKE: `%` stands for any text, `_` for one character; an escape character before either, or before
//! itself, stands for the character.

/// A pattern, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikePattern {
    /// What stands between the `%`, in order.
    parts: Vec<Part>,
    /// There is a `%` before the first part, behind the last one.
    open: (bool, bool),
    /// ILIKE.
    fold: bool,
    /// As it was written, for EXPLAIN.
    text: Box<str>,
}

/// Text without `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Only this text.
    Text(Box<str>),
    /// Characters, of which `None` stands for any one.
    Mask(Box<[Option<char>]>),
}

/// A pattern ends with its escape character (SQLSTATE 22025).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DanglingEscape;

impl LikePattern {
    /// Reads a pattern; `fold` makes it ILIKE. Without `escape` no character escapes.
    ///
    /// # Errors
    /// The escape character has nothing behind it.
    pub fn new(pattern: &str, fold: bool, escape: Option<char>) -> Result<Self, DanglingEscape> {
        let mut parts: Vec<Part> = Vec::new();
        let mut mask: Vec<Option<char>> = Vec::new();
        let mut open = (false, false);
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            open.1 = false;
            if Some(c) == escape {
                let next = chars.next().ok_or(DanglingEscape)?;
                push_folded(&mut mask, next, fold);
            } else if c == '%' {
                open.0 |= parts.is_empty() && mask.is_empty();
                open.1 = true;
                parts.extend(Part::of(&mut mask));
            } else if c == '_' {
                mask.push(None);
            } else {
                push_folded(&mut mask, c, fold);
            }
        }
        parts.extend(Part::of(&mut mask));
        Ok(LikePattern {
            parts,
            open,
            fold,
            text: pattern.into(),
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// Whether it is ILIKE.
    pub fn folds(&self) -> bool {
        self.fold
    }

    /// Whether the pattern fits all of `text`. Linear in its length unless the pattern has `_`.
    pub fn matches(&self, text: &str) -> bool {
        if self.fold && !text.is_ascii() {
            return self.matches_folded(&text.to_lowercase());
        }
        if self.fold && text.bytes().any(|b| b.is_ascii_uppercase()) {
            return self.matches_folded(&text.to_ascii_lowercase());
        }
        self.matches_folded(text)
    }

    fn matches_folded(&self, text: &str) -> bool {
        let (mut rest, mut parts) = (text, &self.parts[..]);
        if !self.open.0 {
            let Some((first, more)) = parts.split_first() else {
                // No part and nothing open: the empty pattern.
                return rest.is_empty();
            };
            let Some(past) = first.at_start(rest) else {
                return false;
            };
            if more.is_empty() && !self.open.1 {
                return past == rest.len();
            }
            rest = &rest[past..];
            parts = more;
        }
        let last = (!self.open.1).then(|| parts.split_last()).flatten();
        if let Some((_, before)) = last {
            parts = before;
        }
        for part in parts {
            let Some(past) = part.past_first(rest) else {
                return false;
            };
            rest = &rest[past..];
        }
        match last {
            Some((part, _)) => part.at_end(rest),
            None => self.open.1 || rest.is_empty(),
        }
    }
}

fn push_folded(mask: &mut Vec<Option<char>>, c: char, fold: bool) {
    if fold {
        mask.extend(c.to_lowercase().map(Some));
    } else {
        mask.push(Some(c));
    }
}

impl Part {
    /// Takes what has been read since the last `%`.
    fn of(mask: &mut Vec<Option<char>>) -> Option<Part> {
        if mask.is_empty() {
            return None;
        }
        let text: Option<String> = mask.iter().copied().collect();
        let part = match text {
            Some(text) => Part::Text(text.into()),
            None => Part::Mask(mask.as_slice().into()),
        };
        mask.clear();
        Some(part)
    }

    /// Bytes of `text` that it takes at its beginning, if it fits there.
    fn at_start(&self, text: &str) -> Option<usize> {
        match self {
            Part::Text(t) => text.starts_with(&**t).then_some(t.len()),
            Part::Mask(mask) => {
                let mut chars = text.chars();
                let mut past = 0;
                for wanted in mask {
                    let c = chars.next()?;
                    if wanted.is_some_and(|w| w != c) {
                        return None;
                    }
                    past += c.len_utf8();
                }
                Some(past)
            }
        }
    }

    /// The first byte behind its first place in `text`.
    fn past_first(&self, text: &str) -> Option<usize> {
        match self {
            Part::Text(t) => text.find(&**t).map(|at| at + t.len()),
            Part::Mask(_) => text
                .char_indices()
                .find_map(|(at, _)| self.at_start(&text[at..]).map(|past| at + past)),
        }
    }

    fn at_end(&self, text: &str) -> bool {
        match self {
            Part::Text(t) => text.ends_with(&**t),
            Part::Mask(mask) => {
                let mut chars = text.chars().rev();
                mask.iter().rev().all(|wanted| {
                    chars
                        .next()
                        .is_some_and(|c| wanted.is_none_or(|wanted| wanted == c))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn like(pattern: &str, text: &str) -> bool {
        LikePattern::new(pattern, false, Some('\\'))
            .unwrap()
            .matches(text)
    }

    /// The rule itself, character by character.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            ['\\', c, rest @ ..] => text.first() == Some(c) && naive(rest, &text[1..]),
            ['_', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
            [c, rest @ ..] => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("%%", "abc", true),
            ("a%", "abc", true),
            ("%c", "abc", true),
            ("%b%", "abc", true),
            ("a%a", "a", false),
            ("a%a", "aa", true),
            ("a_c", "aéc", true),
            ("_", "", false),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("\\%%", "%ab", true),
            ("%\\_", "a_", true),
        ] {
            assert_eq!(like(pattern, text), fits, "{pattern} {text}");
        }
        assert_eq!(
            LikePattern::new("a\\", false, Some('\\')),
            Err(DanglingEscape)
        );
        assert!(LikePattern::new("a\\", false, None).unwrap().matches("a\\"));
        assert!(
            LikePattern::new("a!%", false, Some('!'))
                .unwrap()
                .matches("a%")
        );
        let ilike = LikePattern::new("BrÄke%", true, Some('\\')).unwrap();
        assert!(ilike.matches("bräkes") && ilike.matches("BRÄKE") && !ilike.matches("brake"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn agrees_with_the_rule(pattern in "([ab%_]|\\\\[ab%_\\\\]){0,7}", text in "[ab%_é]{0,7}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(like(&pattern, &text), naive(&p, &t));
        }
    }
}
