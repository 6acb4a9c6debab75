//! The docstrings of a stub file.

use std::collections::HashMap;

const QUOTES: &str = "\"\"\"";

/// The docstrings of a stub, by the name of a function or class, or that of a class and its member with a dot
/// between them. `None` stands for one that has none.
pub fn docstrings(stub: &str) -> HashMap<String, Option<String>> {
    let mut found = HashMap::new();
    let mut class = None;
    let mut lines = stub.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let Some((kind, name)) = declared(text) else {
            continue;
        };
        let name = match (indent, &class) {
            (0, _) => {
                class = (kind == "class").then(|| name.to_owned());
                name.to_owned()
            }
            (_, Some(class)) => format!("{class}.{name}"),
            (_, None) => continue,
        };
        let mut header = line;
        while !ends_header(header) {
            let Some(next) = lines.next() else { break };
            header = next;
        }
        // What follows is looked at without being taken: it may be the next declaration.
        let body = lines
            .clone()
            .map(str::trim_start)
            .find(|line| !line.is_empty());
        let docstring =
            body.filter(|body| header.trim_end().ends_with(':') && body.starts_with(QUOTES));
        // The docstring of an overloaded function stands at one of its forms.
        let entry = found.entry(name).or_insert(None);
        if docstring.is_some() {
            *entry = Some(taken(&mut lines));
        }
    }
    found
}

/// The kind and the name that a line declares.
fn declared(text: &str) -> Option<(&str, &str)> {
    let (kind, rest) = text
        .strip_prefix("async ")
        .unwrap_or(text)
        .split_once(' ')?;
    let name = rest
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .next()?;
    (["class", "def"].contains(&kind) && !name.is_empty()).then_some((kind, name))
}

fn ends_header(line: &str) -> bool {
    let line = line.split("  #").next().unwrap_or_default().trim_end();
    line.ends_with(':') || line.ends_with("...")
}

/// The docstring that begins with the next line, as `inspect.cleandoc` has it.
fn taken<'a>(lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut raw = Vec::new();
    for line in lines.by_ref().skip_while(|line| line.trim().is_empty()) {
        let opening = if raw.is_empty() {
            line.trim_start().strip_prefix(QUOTES)
        } else {
            None
        };
        let line = opening.unwrap_or(line);
        match line.split_once(QUOTES) {
            Some((last, _)) => {
                raw.push(last);
                break;
            }
            None => raw.push(line),
        }
    }
    let indent_of = |line: &&str| line.len() - line.trim_start().len();
    let further = raw.iter().skip(1).filter(|line| !line.trim().is_empty());
    let indent = further.map(indent_of).min().unwrap_or(0);
    let first = raw.iter().take(1).map(|line| line.trim());
    let rest = raw
        .iter()
        .skip(1)
        .map(|line| line.get(indent..).unwrap_or_default().trim_end());
    first
        .chain(rest)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::docstrings;

    const STUB: &str = r#"
"""What the module is."""
def alone(data: bytes) -> int: ...
def told(
    data: bytes, *, size: int = 3
) -> int:
    """What it does.

    Args:
        data: Bytes.
    """
@final
class Machine(Base):
    """A machine.

    Of two lines.
    """
    held: int
    def __new__(cls) -> Self: ...
    @overload
    def send(self, one: int) -> int: ...
    @overload
    def send(self, one: str) -> int:
        """Sends."""
    @property
    def size(self) -> int: ...
class Empty: ...
def after() -> int:

    """After a class."""
"#;

    #[test]
    fn docstrings_are_those_of_python() {
        let found = docstrings(STUB);
        let of = |name: &str| found[name].as_deref();
        assert_eq!(of("alone"), None);
        assert_eq!(of("told"), Some("What it does.\n\nArgs:\n    data: Bytes."));
        assert_eq!(of("Machine"), Some("A machine.\n\nOf two lines."));
        assert_eq!(of("Machine.__new__"), None);
        assert_eq!(of("Machine.send"), Some("Sends."));
        assert_eq!(of("Machine.size"), None);
        assert_eq!(of("Empty"), None);
        assert_eq!(of("after"), Some("After a class."));
        assert_eq!(found.len(), 8);
    }
}
