//! Sorted files that are made from the batches of requests, one after the other: together they tell of all batches up to one.
//!
//! What is in them follows from the table `requests` alone, so whoever finds one missing makes it again, and two who make the same file
//! make the same bytes of knowledge: the first that is there stays.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{BatchNumber, BatchSpan, Error, Kind, Result, parse_span_file, span_file};
use alluvium_lake::{KeyHash, MergeMode, ShutSortedFile, SortedFile, SortedKey, SortedWriter, Store, merge_sorted};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

/// Files are merged when there are so many.
const MERGE_FROM: usize = 8;
/// So many files are merged at a time, at most: each takes a few MiB of memory meanwhile.
const MOST_MERGED: usize = 12;
/// So many files are looked for at a time.
const FOUND_AT_ONCE: usize = 8;
/// Files that another process merges meanwhile, or that a late listing does not show, are looked for so often, at most.
pub(super) const MAX_LOOKS: u32 = 8;
/// The time between two looks: the listing that shows what is gone may be a late one.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A file of a series: open, or shut where it is looked into once or twice.
pub(crate) trait SeriesFile: Clone + Send + Sync {
    /// The file at `path`; `None` if there is none.
    fn find(store: &Store, path: &Path) -> impl Future<Output = Result<Option<Self>>> + Send;
    /// How many entries it has.
    fn entries(&self) -> u64;
    /// The file, open; `None` if it is gone.
    fn open(&self) -> impl Future<Output = Result<Option<SortedFile>>> + Send;
}

impl SeriesFile for SortedFile {
    async fn find(store: &Store, path: &Path) -> Result<Option<Self>> {
        Self::open(store, path).await
    }

    fn entries(&self) -> u64 {
        self.entries()
    }

    async fn open(&self) -> Result<Option<SortedFile>> {
        Ok(Some(self.clone()))
    }
}

impl SeriesFile for ShutSortedFile {
    async fn find(store: &Store, path: &Path) -> Result<Option<Self>> {
        Self::find(store, path).await
    }

    fn entries(&self) -> u64 {
        self.entries()
    }

    async fn open(&self) -> Result<Option<SortedFile>> {
        self.open().await
    }
}

/// The files of one kind that tell of the batches up to [`Series::to`].
#[derive(Debug, Clone)]
pub(crate) struct Series<F = SortedFile> {
    store: Store,
    directory: String,
    /// A batch that no file's span begins before and ends behind: a file tells what changed from its beginning to its end, and not what
    /// changed since a batch within.
    through: BatchNumber,
    /// Whether the last file may tell of batches behind the last that is asked for, too: for entries that say of which batch they are.
    covers: bool,
    /// In the order of their batches, each beginning where the one before ends: a file tells what its own batches changed, so one
    /// that overlaps another would leave out what both changed back.
    files: Vec<(BatchSpan, F)>,
}

impl<F: SeriesFile> Series<F> {
    /// Opens the files in a directory that tell of batches up to `up_to`, as far as they go without a gap.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed, [`Kind::Corrupt`] if a file is damaged.
    pub(crate) async fn open(store: &Store, directory: String, up_to: BatchNumber) -> Result<Self> {
        Self::open_through(store, directory, BatchNumber(0), up_to).await
    }

    /// The same, of files whose spans do not go from before a batch to behind it.
    ///
    /// # Errors
    /// As [`Series::open`].
    pub(crate) async fn open_through(store: &Store, directory: String, through: BatchNumber, up_to: BatchNumber) -> Result<Self> {
        let mut series = Self { store: store.clone(), directory, through, covers: false, files: Vec::new() };
        series.extend(up_to).await?;
        Ok(series)
    }

    /// Opens the files in a directory that tell of batches up to `up_to`, as far as they go without a gap; the last may tell of more.
    ///
    /// # Errors
    /// As [`Series::open`].
    pub(crate) async fn open_covering(store: &Store, directory: String, up_to: BatchNumber) -> Result<Self> {
        let mut series = Self { store: store.clone(), directory, through: BatchNumber(0), covers: true, files: Vec::new() };
        series.extend(up_to).await?;
        Ok(series)
    }

    /// Opens what came since.
    pub(crate) async fn extend(&mut self, up_to: BatchNumber) -> Result<()> {
        if up_to.0 == 0 {
            // Nothing tells of no batches, and a lake without requests is asked nothing.
            self.files.clear();
            return Ok(());
        }
        for look in 0..MAX_LOOKS {
            if look > 0 {
                self.store.machine().sleep(LOOK_INTERVAL).await;
            }
            if self.extend_once(up_to).await? {
                return Ok(());
            }
        }
        Err(Error::new(Kind::Unavailable, format!("files of {} were listed and are gone, {MAX_LOOKS} times", self.directory))
            .hint("other processes may be merging them: run again"))
    }

    /// `false` if a file that was listed is gone: it was merged into another.
    async fn extend_once(&mut self, up_to: BatchNumber) -> Result<bool> {
        let found = self.store.list(&Path::from(self.directory.as_str()), None).await?;
        let mut spans: Vec<BatchSpan> = found.iter().filter_map(|f| parse_span_file(f.path.filename()?)).collect();
        spans.retain(|span| {
            let ends = if self.covers { span.from < up_to } else { span.to <= up_to };
            ends && !(span.from < self.through && self.through < span.to)
        });
        let found = farthest(spans).into_iter().map(async |span| match self.files.iter().find(|(known, _)| *known == span) {
            Some((_, file)) => Ok(Some((span, file.clone()))),
            None => Ok::<_, Error>(F::find(&self.store, &self.path(span)).await?.map(|file| (span, file))),
        });
        let found: Vec<Option<(BatchSpan, F)>> = stream::iter(found).buffered(FOUND_AT_ONCE).try_collect().await?;
        let Some(files) = found.into_iter().collect() else { return Ok(false) };
        self.files = files;
        Ok(true)
    }

    /// The last batch that the files tell of all of.
    pub(crate) fn to(&self) -> BatchNumber {
        self.files.last().map_or(BatchNumber(0), |(span, _)| span.to)
    }

    /// Whether the file at this path is one of them.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|(span, _)| self.path(*span) == *path)
    }

    /// Where the file of a span is.
    pub(crate) fn path(&self, span: BatchSpan) -> Path {
        Self::path_in(&self.directory, span)
    }

    /// Where in a directory the file of a span is.
    pub(crate) fn path_in(directory: &str, span: BatchSpan) -> Path {
        Path::from(format!("{directory}/{}", span_file(span)))
    }

    /// What the same batches are told of in now.
    async fn opened_again<O: SeriesFile>(&self) -> Result<Series<O>> {
        let Self { store, directory, through, covers, .. } = self;
        let mut again =
            Series { store: store.clone(), directory: directory.clone(), through: *through, covers: *covers, files: Vec::new() };
        for _ in 0..MAX_LOOKS {
            again.extend(self.to()).await?;
            if again.to() >= self.to() {
                return Ok(again);
            }
            store.machine().sleep(LOOK_INTERVAL).await;
        }
        Err(self.merged_too_often())
    }

    /// What was gone while it was read once, from which on nothing can be told again, was merged: another run finds it.
    pub(crate) fn read_once<T>(&self, read: Result<T>) -> Result<T> {
        match read {
            Err(e) if e.kind() == Kind::NotFound => Err(self.merged_too_often()),
            read => read,
        }
    }

    fn merged_too_often(&self) -> Error {
        Error::new(Kind::Unavailable, format!("files of {} were merged with those of later batches meanwhile", self.directory))
            .hint("run again")
    }

    /// Makes one file of several small ones of about the same size, where there are many: all of them tell of batches that are finished,
    /// and nobody asks for what was between them. The ones it is made of go. Files up to `at`, where a table is, and those behind it are not
    /// mixed, and the newest `apart` of both are left out. Of their notes, `note` makes one.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if another process merges them.
    pub(crate) async fn merge_small(
        &mut self,
        mode: MergeMode,
        at: BatchNumber,
        apart: usize,
        note: fn(&[&str]) -> String,
    ) -> Result<()> {
        let merged = self.merge_beside(mode, at, apart, note).await?;
        self.remove(merged).await
    }

    /// Removes files that others were made of.
    pub(crate) async fn remove(&self, merged: Vec<Path>) -> Result<()> {
        self.store.delete_all(merged).await
    }

    /// As [`Series::merge_small`], but the files that it was made of stay, for who reads them; they are told.
    pub(crate) async fn merge_beside(
        &mut self,
        mode: MergeMode,
        at: BatchNumber,
        apart: usize,
        note: fn(&[&str]) -> String,
    ) -> Result<Vec<Path>> {
        let (before, behind) = self.files.split_at(self.files.partition_point(|(span, _)| span.to <= at));
        let some = [behind, before].into_iter().find_map(|files| mergeable(&files[..files.len().saturating_sub(apart)]));
        let Some(some) = some.map(<[_]>::to_vec) else { return Ok(Vec::new()) };
        let (Some((oldest, _)), Some((newest, _))) = (some.first(), some.last()) else { return Ok(Vec::new()) };
        let Some(span) = BatchSpan::new(oldest.from, newest.to) else { return Ok(Vec::new()) };
        let mut writer = SortedWriter::new(&self.store, self.path(span))?;
        let gone = |span| Error::new(Kind::NotFound, format!("the sorted file {} is gone", self.path(span))).hint("run again");
        let mut files: Vec<SortedFile> = Vec::with_capacity(some.len());
        for (span, file) in &some {
            files.push(file.open().await?.ok_or_else(|| gone(*span))?);
        }
        merge_sorted(&files, mode, |_, _| true, &mut writer).await?;
        let notes: Vec<&str> = files.iter().map(SortedFile::meta).collect();
        let note = note(&notes);
        match writer.finish(&note).await {
            // Another process was quicker.
            Err(e) if e.kind() == Kind::Conflict => {}
            written => {
                let _size = written?;
            }
        }
        // Another process may have merged it with others by now.
        let merged = F::find(&self.store, &self.path(span)).await?.ok_or_else(|| gone(span))?;
        let merged_from = some.iter().map(|(span, _)| self.path(*span)).collect();
        let keep = |span: &BatchSpan| !some.iter().any(|(other, _)| other == span);
        let mut files: Vec<(BatchSpan, F)> = self.files.iter().filter(|(span, _)| keep(span)).cloned().collect();
        files.push((span, merged));
        files.sort_by_key(|(span, _)| *span);
        self.files = files;
        Ok(merged_from)
    }
}

impl Series {
    /// Whether any file may hold the key.
    pub(crate) fn may_contain(&self, key: &SortedKey) -> bool {
        let hash = KeyHash::of(key);
        self.files.iter().any(|(_, file)| file.may_contain_hashed(key, hash))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.iter().all(|(_, file)| file.entries() == 0)
    }

    /// The files, oldest first.
    pub(crate) fn files(&self) -> impl DoubleEndedIterator<Item = (BatchSpan, &SortedFile)> {
        self.files.iter().map(|(span, file)| (*span, file))
    }

    /// What all entries of sorted keys come to, told from the oldest file to the newest: which key, and the value. If files were merged
    /// meanwhile, all is told once more from the first on, and what was told before is forgotten: it may not be taken back then.
    pub(crate) async fn get_all<T: Default>(
        &self,
        keys: &[SortedKey],
        mut visit: impl FnMut(&mut T, usize, &[u8]) -> Result<()>,
    ) -> Result<T> {
        let mut again: Option<Self> = None;
        for _ in 0..MAX_LOOKS {
            let files = &again.as_ref().unwrap_or(self).files;
            let (mut told, mut got) = (T::default(), Ok(()));
            for (_, file) in files {
                got = file.get_many(keys, |at, value| visit(&mut told, at, value)).await;
                if got.is_err() {
                    break;
                }
            }
            match got {
                Err(e) if e.kind() == Kind::NotFound => again = Some(self.opened_again().await?),
                got => return got.map(|()| told),
            }
        }
        Err(self.merged_too_often())
    }

    /// All entries whose keys begin so, from the oldest file to the newest. If files were merged meanwhile, once more from the first on.
    pub(crate) async fn scan_prefix(&self, prefix: &[u8; 8], mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut again: Option<Self> = None;
        for _ in 0..MAX_LOOKS {
            match again.as_ref().unwrap_or(self).scan_prefix_once(prefix, &mut visit).await {
                Err(e) if e.kind() == Kind::NotFound => again = Some(self.opened_again().await?),
                scanned => return scanned,
            }
        }
        Err(self.merged_too_often())
    }

    async fn scan_prefix_once(&self, prefix: &[u8; 8], visit: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut from = [0; SortedKey::BYTES];
        from[..8].copy_from_slice(prefix);
        for (_, file) in &self.files {
            let mut scan = file.scan_from(&SortedKey(from));
            while scan.advance().await? {
                match scan.key().0[..8].cmp(prefix) {
                    Ordering::Less => {}
                    Ordering::Equal => visit(scan.value())?,
                    Ordering::Greater => break,
                }
            }
        }
        Ok(())
    }
}

impl Series<ShutSortedFile> {
    /// The same batches, by files that are open.
    pub(crate) async fn opened(&self) -> Result<Series> {
        self.opened_again().await
    }

    /// What entries of sorted keys say: which key, and what is read of the value. All files are looked into at once; if they were merged
    /// meanwhile, again.
    pub(crate) async fn read_all<T: Send + 'static>(
        &self,
        keys: Vec<SortedKey>,
        read: fn(&[u8]) -> Result<T>,
    ) -> Result<Vec<(SortedKey, T)>> {
        let (keys, mut again) = (Arc::<[SortedKey]>::from(keys), None::<Self>);
        for _ in 0..MAX_LOOKS {
            let looks = again.as_ref().unwrap_or(self).files.iter().map(|(_, file)| {
                let (file, keys) = (file.clone(), keys.clone());
                tokio::spawn(async move {
                    let mut found = Vec::new();
                    let visit = |at: usize, value: &[u8]| read(value).map(|value| found.push((keys[at], value)));
                    file.get_many(&keys, visit).await.map(|()| found)
                })
            });
            let mut all = Ok(Vec::new());
            for of_file in join_all(looks.collect::<Vec<_>>()).await {
                let of_file = of_file.map_err(|e| Error::new(Kind::Internal, "looking into sorted files").source(e))?;
                all = all.and_then(|mut all| of_file.map(|mut found| all.append(&mut found)).map(|()| all));
            }
            match all {
                Err(e) if e.kind() == Kind::NotFound => again = Some(self.opened_again().await?),
                all => return all,
            }
        }
        Err(self.merged_too_often())
    }
}

/// The spans that, one behind the other from the first batch on, go as far as any do: few long ones rather than many. Processes that fold
/// at the same time make spans that overlap, and the longest may lead nowhere.
fn farthest(mut spans: Vec<BatchSpan>) -> Vec<BatchSpan> {
    // How far it goes from behind a batch on, and by which span; of those that go as far, by the longest.
    let mut from: BTreeMap<BatchNumber, (BatchNumber, BatchSpan)> = BTreeMap::new();
    spans.sort_unstable_by_key(|span| std::cmp::Reverse((span.from, span.to)));
    for span in spans {
        let reached = from.get(&span.to).map_or(span.to, |(reached, _)| *reached);
        if from.get(&span.from).is_none_or(|(known, _)| *known < reached) {
            from.insert(span.from, (reached, span));
        }
    }
    let (mut chain, mut at) = (Vec::new(), BatchNumber(0));
    while let Some((_, next)) = from.get(&at) {
        chain.push(*next);
        at = next.to;
    }
    chain
}

/// The files that are worth to be made into one, if there are any.
fn mergeable<F: SeriesFile>(files: &[(BatchSpan, F)]) -> Option<&[(BatchSpan, F)]> {
    if files.len() < MERGE_FROM {
        return None;
    }
    // From the newest back, as long as a file is not much larger than those behind it together.
    let (mut first, mut entries) = (files.len() - 1, 0);
    while first > 0
        && files.len() - first < MOST_MERGED
        && files[first - 1].1.entries() <= 2 * (entries + files[first].1.entries())
    {
        entries += files[first].1.entries();
        first -= 1;
    }
    Some(&files[first..]).filter(|some| some.len() > 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use object_store::memory::InMemory;
    use proptest::prelude::*;

    use super::*;

    fn spans(of: &[(u64, u64)]) -> Vec<BatchSpan> {
        of.iter().filter_map(|(from, to)| BatchSpan::new(BatchNumber(*from), BatchNumber(*to))).collect()
    }

    #[test]
    fn the_longest_span_is_passed_over_where_it_leads_nowhere() {
        let listed = [(0, 1), (1, 5), (5, 8), (8, 9), (8, 12), (9, 14)];
        assert_eq!(farthest(spans(&listed)), spans(&[(0, 1), (1, 5), (5, 8), (8, 9), (9, 14)]));
        assert_eq!(farthest(spans(&listed[..5])), spans(&[(0, 1), (1, 5), (5, 8), (8, 12)]));
        assert_eq!(farthest(spans(&[(0, 1), (1, 2), (0, 2), (3, 4)])), spans(&[(0, 2)]));
        assert_eq!(farthest(spans(&[(1, 2)])), []);
    }

    #[tokio::test]
    async fn a_span_from_before_where_the_table_is_to_behind_it_is_passed_over() {
        let store = Store::over(Arc::new(InMemory::new()));
        for span in spans(&[(0, 3), (3, 5), (3, 8), (5, 7)]) {
            let writer = SortedWriter::new(&store, Series::<SortedFile>::path_in("l", span)).unwrap();
            writer.finish("").await.unwrap();
        }
        for (through, up_to, chain) in [
            (0, 8, &[(0, 3), (3, 8)][..]),
            (3, 8, &[(0, 3), (3, 8)]),
            (5, 8, &[(0, 3), (3, 5), (5, 7)]),
            (6, 8, &[(0, 3), (3, 5)]),
            (5, 5, &[(0, 3), (3, 5)]),
        ] {
            let opened = Series::<SortedFile>::open_through(&store, "l".to_owned(), BatchNumber(through), BatchNumber(up_to));
            let found: Vec<BatchSpan> = opened.await.unwrap().files().map(|(span, _)| span).collect();
            assert_eq!(found, spans(chain), "through {through} up to {up_to}");
        }
    }

    #[tokio::test]
    async fn a_series_that_covers_goes_on_with_a_file_that_tells_of_later_batches_too() {
        let store = Store::over(Arc::new(InMemory::new()));
        for span in spans(&[(0, 3), (3, 5), (3, 8), (8, 9)]) {
            let writer = SortedWriter::new(&store, Series::<SortedFile>::path_in("l", span)).unwrap();
            writer.finish("").await.unwrap();
        }
        for (up_to, chain) in [(3, &[(0, 3)][..]), (4, &[(0, 3), (3, 8)]), (8, &[(0, 3), (3, 8)]), (9, &[(0, 3), (3, 8), (8, 9)])]
        {
            let opened = Series::<SortedFile>::open_covering(&store, "l".to_owned(), BatchNumber(up_to)).await.unwrap();
            let found: Vec<BatchSpan> = opened.files().map(|(span, _)| span).collect();
            assert_eq!(found, spans(chain), "up to {up_to}");
        }
    }

    #[tokio::test]
    async fn what_a_file_told_that_was_merged_while_others_were_read_is_forgotten() {
        let store = Store::over(Arc::new(InMemory::new()));
        let key = SortedKey([7; SortedKey::BYTES]);
        let all = spans(&[(0, 1), (1, 2), (0, 2)]);
        let write = async |span: BatchSpan, value: Option<&[u8]>| {
            let mut writer = SortedWriter::new(&store, Series::<SortedFile>::path_in("l", span)).unwrap();
            value.into_iter().for_each(|value| writer.push(key, value).unwrap());
            writer.finish("").await.unwrap();
        };
        write(all[0], Some(b"there")).await;
        write(all[1], Some(b"gone")).await;
        let series = Series::<SortedFile>::open(&store, "l".to_owned(), BatchNumber(2)).await.unwrap();
        // Folded at once: nothing differs from what was before the first batch.
        write(all[2], None).await;
        store.delete_all(vec![series.path(all[1])]).await.unwrap();
        let tell = |told: &mut Vec<Vec<u8>>, _, value: &[u8]| {
            told.push(value.to_vec());
            Ok(())
        };
        assert_eq!(series.get_all(&[key], tell).await.unwrap(), [b""; 0]);
    }

    proptest! {
        #[test]
        fn spans_go_as_far_as_any_do(listed in proptest::collection::vec((0_u64..8, 1_u64..8), 0..12)) {
            let listed: Vec<(u64, u64)> = listed.into_iter().map(|(from, length)| (from, from + length)).collect();
            // Whatever can be reached, by trying all.
            let mut reached = std::collections::BTreeSet::from([0]);
            for _ in 0..listed.len() {
                let next: Vec<u64> = listed.iter().filter(|(from, _)| reached.contains(from)).map(|(_, to)| *to).collect();
                reached.extend(next);
            }
            let chain = farthest(spans(&listed));
            let joins = std::iter::once(0).chain(chain.iter().map(|span| span.to.0));
            prop_assert!(chain.iter().zip(joins).all(|(span, end)| span.from.0 == end));
            prop_assert_eq!(chain.last().map_or(0, |span| span.to.0), reached.last().copied().unwrap_or(0));
        }
    }
}
