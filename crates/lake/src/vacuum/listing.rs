//! The first step: the files that a vacuum may look at.

use alluvium_core::{BatchKey, ChainId, IndexFile, NextVersion, Result, parse_data_file, parse_rewrites_name};
use object_store::path::Path;

use super::{PutBefore, Vacuum};
use crate::log::KeptFiles;
use crate::store;

/// An object that may be one too many.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) path: Path,
    pub(super) size: u64,
    pub(super) object: Object,
    /// So young that somebody may still be about to publish it.
    pub(super) is_young: bool,
}

/// What an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// A data file, or one of the change data feed, that a batch of ours staged: its path in the table.
    File { chain: ChainId, key: BatchKey, name: String },
    /// The index of such files.
    Index(IndexFile),
    /// What tells which rows of such files changed.
    Rewrites { chain: ChainId, key: BatchKey, name: String },
    /// Another program's.
    Foreign,
}

impl Object {
    /// The batch that staged it.
    pub(super) fn batch(&self) -> Option<(&ChainId, BatchKey)> {
        match self {
            Self::File { chain, key, .. } | Self::Rewrites { chain, key, .. } => Some((chain, *key)),
            Self::Index(index) => Some((&index.chain, index.key)),
            Self::Foreign => None,
        }
    }

    /// Whether it lies beside the table, and holds no rows.
    pub(super) fn is_beside(&self) -> bool {
        matches!(self, Self::Index(_) | Self::Rewrites { .. })
    }
}

impl Candidate {
    /// Whether a kept version needs it.
    pub(super) fn is_needed(&self, kept: &KeptFiles) -> bool {
        match &self.object {
            Object::File { .. } | Object::Foreign => kept.needs(&self.path),
            Object::Index(index) => kept.needs_index(index),
            Object::Rewrites { name, .. } => kept.needs_rewrites(name),
        }
    }
}

impl Vacuum {
    /// What the newest version does not need; of other programs only what is old enough.
    pub(super) async fn list(&self, before: PutBefore) -> Result<Vec<Candidate>> {
        let newest = self.kept(NextVersion(u64::MAX), 0).await?;
        let root = self.log.root();
        let in_table = self.listed(root, before, |path, file| self.in_table(path, file)).await?;
        let indexes_dir = Path::from(self.resolver.file_index_dir(&self.table));
        let of_index = |path: &str, _: &str| IndexFile::parse(path).map(Object::Index);
        let beside = self.listed(&indexes_dir, before, of_index).await?;
        let rewrites_dir = Path::from(self.resolver.rewrites_dir(&self.table));
        let of_rewrites = |path: &str, _: &str| {
            parse_rewrites_name(path).map(|(chain, key)| Object::Rewrites { chain, key, name: path.to_owned() })
        };
        let rewrites = self.listed(&rewrites_dir, before, of_rewrites).await?;
        Ok(in_table.into_iter().chain(beside).chain(rewrites).filter(|candidate| !candidate.is_needed(&newest)).collect())
    }

    /// The objects below a directory that `kind` knows by their path in it and their own name, and that are old enough.
    async fn listed(
        &self,
        directory: &Path,
        before: PutBefore,
        kind: impl Fn(&str, &str) -> Option<Object>,
    ) -> Result<Vec<Candidate>> {
        let depth = directory.parts().count();
        let candidate = |found: store::Found| {
            let below: Path = found.path.parts().skip(depth).collect();
            let object = kind(below.as_ref(), below.filename()?)?;
            let is_foreign = object == Object::Foreign;
            let is_young = found.modified_ms >= if is_foreign { before.foreign_ms } else { before.ours_ms };
            // Of ours the records tell more than age does, and of others what the table has replaced.
            let may_go = !is_young || !is_foreign || before.replaced_until.is_some();
            may_go.then_some(Candidate { path: found.path, size: found.size, object, is_young })
        };
        Ok(self.store().list(directory, None).await?.into_iter().filter_map(candidate).collect())
    }

    /// What a file in the table's directory is; `None` for what no table consists of.
    fn in_table(&self, path: &str, name: &str) -> Option<Object> {
        let directories: Vec<&str> = path.split('/').collect();
        let directories = &directories[..directories.len() - 1];
        let is_feed = directories.first() == Some(&"_change_data");
        if let Some(file) = parse_data_file(name)
            && (directories.is_empty() || (is_feed && directories.len() == 1))
            && file.chain.incarnation == self.incarnation
        {
            return Some(Object::File { chain: file.chain, key: file.key, name: path.to_owned() });
        }
        // As Delta has it: what begins so is none of a table's files, but for its change data feed and partitions.
        let is_hidden = |part: &&str| part.starts_with(['_', '.']) && !part.contains('=');
        let hidden = directories.iter().skip(usize::from(is_feed)).chain([&name]).any(is_hidden);
        (!hidden).then_some(Object::Foreign)
    }
}
