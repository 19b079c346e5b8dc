//! Tables of cases in text: a row has lines that begin at the margin, the input, and indented lines below them, the
//! expected output.

/// Returns the rows of a table, which have `N` lines of output each.
pub fn rows<const N: usize>(table: &str) -> Vec<(&str, [&str; N])> {
    let mut rows = Vec::new();
    let mut rest = table.trim_start_matches('\n');
    while !rest.is_empty() {
        let end = rest.find("\n    ").expect("output below the input");
        let (input, mut below) = rest.split_at(end);
        let output = [(); N].map(|()| {
            let line = below
                .strip_prefix("\n    ")
                .and_then(|below| below.lines().next());
            let line = line.unwrap_or_else(|| panic!("{N} lines of output, not fewer: {input}"));
            below = &below[line.len() + 5..];
            line
        });
        assert!(
            !below.starts_with("\n    "),
            "{N} lines of output, not more: {input}"
        );
        rows.push((input, output));
        rest = below.trim_start_matches('\n');
    }
    rows
}
