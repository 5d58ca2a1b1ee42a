//! The examples of `docs/guide/input.md` are true.

use super::json::values;

#[test]
fn every_example_of_the_guide_is_true() {
    let guide = include_str!("../../../../../../docs/guide/input.md");
    let mut examples = 0;
    for line in guide.lines() {
        let cells: Vec<&str> = line.split(" | ").map(|c| c.trim_matches(['|', ' '])).collect();
        let [data_type, value, becomes] = cells[..] else { continue };
        let Some(data_type) = data_type.strip_prefix('`').and_then(|t| t.strip_suffix('`')) else { continue };
        let expected = becomes.strip_prefix("refused: ").unwrap_or_else(|| becomes.trim_matches('`'));
        assert_eq!(values(data_type, &[value.trim_matches('`')]), [expected], "{line}");
        examples += 1;
    }
    assert!(examples >= 40, "{examples}");
}
