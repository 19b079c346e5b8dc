//! HTML pages for browsers: one document with placeholders, filled from templates, and a content security policy
//! that allows only the page's own style and script.
//!
//! Takes: a [`Template`], and values by name. Gives: a [`Page`]. Never: emits foreign text unescaped, or a page that
//! loads resources from other hosts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Document around the style and the body of every page.
const DOCUMENT: &str = include_str!("document.html");

/// Parts in which pages differ. Style and body may have placeholders, `{{name}}`.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// Title of the page, as HTML.
    pub title: &'static str,
    /// Style sheet.
    pub style: &'static str,
    /// Content of the body, and the page's script.
    pub body: &'static str,
}

/// HTML page with its content security policy. Both belong together: the policy contains hashes of the page's
/// style and script.
#[derive(Clone, Debug)]
pub struct Page {
    /// HTML text of the page.
    pub body: String,
    /// Value of the `content-security-policy` header.
    pub policy: String,
}

impl Page {
    /// Fills a template: `{{name}}` becomes the value of that name, which must be HTML already ([`escaped`]
    /// converts text). The policy allows the template's style and script by their hashes, and no others.
    pub fn new(template: Template, values: &[(&str, String)]) -> Self {
        let Template { title, style, body } = template;
        let parts = [("title", title), ("style", style), ("body", body)];
        let template = filled(DOCUMENT, &parts);
        let hash = |tag: &str| {
            between(&template, &format!("<{tag}>"), &format!("</{tag}>")).map_or_else(
                || "'none'".to_owned(),
                |text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text))),
            )
        };
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash("style"),
            hash("script")
        );
        Self {
            body: filled(&template, values),
            policy,
        }
    }
}

/// Returns the text between the first `start` and the next `end`.
fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inner, _)| inner)
}

/// Returns the template with its placeholders filled. Values are not scanned again, and unknown names become
/// empty.
fn filled(template: &str, values: &[(&str, impl AsRef<str>)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((name, after)) = after.split_once("}}") else {
            out.push_str("{{");
            rest = after;
            continue;
        };
        if let Some((_, value)) = values.iter().find(|(own, _)| *own == name) {
            out.push_str(value.as_ref());
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Escapes text for HTML, inside quoted attributes too.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_once() {
        let values = [("a", escaped("<b a='{{b}}'>&\"")), ("b", "no".to_owned())];
        assert_eq!(
            filled("{{a}}-{{c}}-{{a", &values),
            "&lt;b a=&#39;{{b}}&#39;&gt;&amp;&quot;--{{a"
        );
    }

    #[test]
    fn the_policy_allows_the_own_style_and_script_alone() {
        let template = Template {
            title: "",
            style: "a",
            body: "<script>b</script>",
        };
        let page = Page::new(template, &[]);
        // Expected hashes are the output of `printf '\na' | openssl dgst -sha256 -binary | base64`, and of `printf b`.
        let (a, b) = (
            "c2Gm9LN0dF3q+Jascoh9VeBBB9Gh/xTl5Ngp+0foJCY=",
            "PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0=",
        );
        assert!(
            page.policy
                .contains(&format!("style-src 'sha256-{a}'; script-src 'sha256-{b}'")),
            "{}",
            page.policy
        );
        assert!(
            page.policy.starts_with("default-src 'none'; "),
            "{}",
            page.policy
        );
        assert!(
            Page::new(
                Template {
                    body: "",
                    ..template
                },
                &[]
            )
            .policy
            .contains("script-src 'none'")
        );
    }
}
