use super::*;

#[test]
fn kept_rows_are_all_without_the_deleted_or_the_marked_without_the_others() {
    for (of, without, total, kept) in [
        (None, &[][..], 5, vec![(0, 5)]),
        (None, &[0, 2, 3, 9], 5, vec![(1, 2), (4, 5)]),
        (None, &[4], 5, vec![(0, 4)]),
        (None, &[0, 1], 2, vec![]),
        (Some(&[1, 2, 4, 7][..]), &[2], 5, vec![(1, 2), (4, 5)]),
        (Some(&[1, 2, 3]), &[], 5, vec![(1, 4)]),
        (Some(&[1]), &[1], 5, vec![]),
    ] {
        let ranges: Vec<(usize, usize)> = kept_ranges(of, without, total).iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(ranges, kept, "{of:?} without {without:?} of {total}");
    }
}
