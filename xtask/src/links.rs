//! Links between the Markdown files of the repository, and the book's table of contents.

use crate::read;
use anyhow::Result;
use std::path::Path;

/// Adds a line for each link to a file that is not there, and for each page that the book leaves out.
pub(crate) fn check(root: &Path, pages: &[String], problems: &mut Vec<String>) -> Result<()> {
    for page in pages {
        let text = read(&root.join(page))?;
        let folder = Path::new(page).parent().unwrap_or(Path::new(""));
        for target in targets(&text) {
            if target.contains("://")
                || target.starts_with(['#', '<'])
                || target.starts_with("mailto:")
            {
                continue;
            }
            let file = target.split('#').next().unwrap_or_default();
            if !root.join(folder).join(file).exists() {
                problems.push(format!("{page}: the link to {target} leads nowhere"));
            }
        }
    }
    let contents = read(&root.join("docs/SUMMARY.md"))?;
    for page in pages.iter().filter_map(|page| page.strip_prefix("docs/")) {
        if page != "SUMMARY.md" && !contents.contains(&format!("({page})")) {
            problems.push(format!("docs/{page} is not in docs/SUMMARY.md"));
        }
    }
    Ok(())
}

/// Targets of inline links outside of code blocks.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        found.extend(line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_found() {
        let text = "a [b](c.md) and [d](e#f)\n```\n[x](y)\n```\n[g](https://h)\n";
        assert_eq!(targets(text), ["c.md", "e#f", "https://h"]);
    }
}
