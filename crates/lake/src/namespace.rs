//! A namespace's own file, its deletion, and which namespaces there are. The form is in `docs/formats/namespace.md`.

use alluvium_core::{Error, Incarnation, Kind, Resolver, Result};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::records::read_versioned;
use crate::store::{PutNew, Store, prove_once};

/// The version of the stored form that this program writes and the newest it reads.
pub const NAMESPACE_FORMAT: u32 = 1;

/// A namespace that is being deleted is looked through so often for what came meanwhile.
const MAX_SWEEPS: u32 = 10;

#[derive(Debug, Serialize, Deserialize)]
struct NamespaceFile {
    format: u32,
    incarnation: Incarnation,
    created_at_ms: i64,
}

/// The incarnation of the namespace, if it was ever used.
///
/// # Errors
/// [`Kind::Conflict`] if it is being deleted, [`Kind::Unsupported`] if a newer program made it, [`Kind::Corrupt`] if its file
/// cannot be read.
pub async fn open_namespace(store: &Store, resolver: &Resolver) -> Result<Option<Incarnation>> {
    let path = resolver.namespace_file();
    let (mark, file) = (Path::from(resolver.deleting_mark()), Path::from(path.as_str()));
    let (mark, file) = futures::future::try_join(store.get(&mark), store.get(&file)).await?;
    if mark.is_some() {
        return Err(Error::new(Kind::Conflict, format!("namespace {} is being deleted", resolver.namespace()))
            .hint(format!("finish it with: alluvium namespace delete {} --yes", resolver.namespace())));
    }
    let Some(bytes) = file else { return Ok(None) };
    read_versioned::<NamespaceFile>(&bytes, NAMESPACE_FORMAT, &path).map(|file| Some(file.incarnation))
}

/// The incarnation of the namespace, which is made if it was never used. Before anything is relied upon, the store is proved to
/// refuse puts over what is there.
///
/// # Errors
/// As [`open_namespace`]; [`Kind::Unsupported`] if the store does not refuse them.
pub async fn open_or_create_namespace(store: &Store, resolver: &Resolver, now_ms: i64) -> Result<Incarnation> {
    loop {
        if let Some(incarnation) = open_namespace(store, resolver).await? {
            prove_once(store, resolver, now_ms).await?;
            return Ok(incarnation);
        }
        prove_once(store, resolver, now_ms).await?;
        let incarnation = Incarnation(store.machine().fresh_id().simple().to_string());
        let file = NamespaceFile { format: NAMESPACE_FORMAT, incarnation: incarnation.clone(), created_at_ms: now_ms };
        let bytes = serde_json::to_vec(&file).map_err(|e| Error::new(Kind::Internal, "writing a namespace's file").source(e))?;
        match store.put_new(&Path::from(resolver.namespace_file()), Bytes::from(bytes)).await? {
            PutNew::Created => return Ok(incarnation),
            PutNew::Exists => {}
        }
    }
}

/// The names of the namespaces in the store that were ever used and not deleted.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed.
pub async fn list_namespaces(store: &Store) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in store.list_directories(&Path::default()).await? {
        let Ok(namespace) = alluvium_core::Namespace::parse(&name) else { continue };
        let resolver = Resolver::new(namespace);
        let used = store.get(&Path::from(resolver.namespace_file())).await?.is_some();
        if used || store.get(&Path::from(resolver.deleting_mark())).await?.is_some() {
            names.push(name);
        }
    }
    Ok(names)
}

/// What a namespace owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Objects in the store.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts what a namespace owns.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed.
pub async fn namespace_owns(store: &Store, resolver: &Resolver) -> Result<Owned> {
    let found = store.list(&Path::from(resolver.namespace_root()), None).await?;
    Ok(Owned { objects: found.len() as u64, bytes: found.iter().map(|f| f.size).sum() })
}

/// Deletes all that a namespace owns that is marked for deletion, what comes meanwhile too, and the mark last. May be repeated until it
/// succeeds.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed; delete again.
///
/// # Cancel safety
/// Cancelled anywhere, the mark stays until another deletion ends.
pub async fn delete_namespace(store: &Store, resolver: &Resolver) -> Result<Owned> {
    let mark = Path::from(resolver.deleting_mark());
    let found = store.list(&Path::from(resolver.namespace_root()), None).await?;
    let owned = Owned {
        objects: found.iter().filter(|f| f.path != mark).count() as u64,
        bytes: found.iter().filter(|f| f.path != mark).map(|f| f.size).sum(),
    };
    // From here on the end is decided, whoever goes on with it.
    store.delete(&Path::from(resolver.namespace_file())).await?;
    let mut sweeps = 0;
    while sweeps < MAX_SWEEPS && sweep_namespace(store, resolver, &mark).await? > 0 {
        sweeps += 1;
    }
    store.delete(&mark).await?;
    store.remove_empty_directories(&Path::from(resolver.namespace_root()), &mark).await?;
    Ok(owned)
}

/// Marks the namespace as being deleted: nobody begins to write from then on. The life that is to end; `None`: it never began, or its end
/// was decided before.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed: then it is marked or not. As [`open_namespace`] for a file that cannot be read.
pub async fn mark_for_deletion(store: &Store, resolver: &Resolver) -> Result<Option<Incarnation>> {
    let _marked_now_or_before =
        store.put_new(&Path::from(resolver.deleting_mark()), Bytes::from_static(b"{\"format\":1}")).await?;
    let path = resolver.namespace_file();
    let Some(bytes) = store.get(&Path::from(path.as_str())).await? else { return Ok(None) };
    read_versioned::<NamespaceFile>(&bytes, NAMESPACE_FORMAT, &path).map(|file| Some(file.incarnation))
}

/// Takes the mark away that [`mark_for_deletion`] put.
///
/// # Errors
/// [`Kind::Unavailable`] if the store failed: the mark stays until a deletion ends.
pub async fn unmark_for_deletion(store: &Store, resolver: &Resolver) -> Result<()> {
    store.delete(&Path::from(resolver.deleting_mark())).await
}

/// Deletes what a listing shows but for the mark; how many objects that were.
async fn sweep_namespace(store: &Store, resolver: &Resolver, mark: &Path) -> Result<usize> {
    let root = Path::from(resolver.namespace_root());
    // The newest first: a table whose log is half deleted must never look whole.
    let found = store.list(&root, None).await?.into_iter().rev().map(|f| f.path).filter(|path| path != mark);
    let found: Vec<Path> = found.collect();
    let count = found.len();
    store.delete_all(found).await?;
    store.remove_empty_directories(&root, mark).await?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_golden_file_reads_and_writes_as_it_is() {
        let golden = include_str!("../tests/golden/namespace-v1.json").trim_end();
        let file: NamespaceFile = read_versioned(golden.as_bytes(), NAMESPACE_FORMAT, "namespace.json").unwrap();
        assert_eq!(file.incarnation.0, "0123456789abcdef0123456789abcdef");
        assert_eq!(file.created_at_ms, 1_795_965_978_528);
        assert_eq!(serde_json::to_string(&file).unwrap(), golden);
    }

    #[test]
    fn a_newer_format_is_unsupported_and_bytes_that_are_none_are_corrupt() {
        let refused =
            |text: &str| read_versioned::<NamespaceFile>(text.as_bytes(), NAMESPACE_FORMAT, "namespace.json").unwrap_err().kind();
        assert_eq!(refused(r#"{"format":2,"all":"else"}"#), Kind::Unsupported);
        assert_eq!(refused(r#"{"format":1}"#), Kind::Corrupt);
        assert_eq!(refused(""), Kind::Corrupt);
    }
}
