//! `xtask/python/read_table.py`, the check by other readers, must itself be able to say yes and no.
//!
//! Needs the Python that `.ci/run` installs, named by `ALLUVIUM_TEST_PYTHON`; without it the tests say that they skip.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::root;

/// Runs Python with `args`, or says why not.
fn python<S: AsRef<OsStr>>(args: &[S]) -> Option<Output> {
    let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
        eprintln!("skipped: ALLUVIUM_TEST_PYTHON is not set (.ci/run sets it)");
        return None;
    };
    Some(Command::new(python).args(args).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap())
}

/// Runs Python `code` that can import `read_table`; what it prints.
fn with_read_table(code: &str) -> Option<String> {
    let scripts = root().join("xtask/python");
    let output = python(&["-c", &format!("import sys\nsys.path.insert(0, sys.argv[1])\n{code}"), scripts.to_str().unwrap()])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn read_table(table: &Path) -> Option<Output> {
    python(&[root().join("xtask/python/read_table.py").as_os_str(), table.as_os_str()])
}

/// Tables that Spark wrote, when the shared test data is there.
fn spark_table(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("ALLUVIUM_TEST_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let table = data.join("delta-rs-tables").join(name);
    if table.exists() {
        return Some(table);
    }
    eprintln!("skipped: {name} is not among the test data");
    None
}

/// A directory of this test process that is removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("alluvium-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn four_readers_agree_on_a_table_of_spark() {
    // delta-rs documents simple_table: three rows, 5, 7 and 9.
    let Some(output) = spark_table("simple_table").and_then(|table| read_table(&table)) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for wanted in
        [r#""rows": 3"#, r#""id": {"nulls": 0, "sum": 21}"#, r#""polars": {"rows": 3"#, r#""duckdb_parquet": {"rows": 3"#]
    {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
}

#[test]
fn table_that_lacks_a_file_is_refused() {
    let Some(table) = spark_table("delta-0.8.0-partitioned") else { return };
    let scratch = Scratch::new("lacks-a-file");
    copy(&table, &scratch.0);
    let victim = fs::read_dir(&scratch.0)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|path| path.to_string_lossy().contains("year="))
        .unwrap();
    fs::remove_dir_all(victim).unwrap();
    let Some(output) = read_table(&scratch.0) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("deltalake failed"));
}

#[test]
fn rows_in_another_order_do_not_differ_and_another_value_does() {
    let code = r#"
import pyarrow as pa
from read_table import differences, summary
see = lambda rows: summary(pa.Table.from_pylist(rows))[0]
one = see([{"n": 1, "s": "a"}, {"n": 2, "s": "b"}])
print(differences({"x": one, "y": see([{"n": 2, "s": "b"}, {"n": 1, "s": "a"}])}))
print(len(differences({"x": one, "y": see([{"n": 1, "s": "b"}, {"n": 2, "s": "a"}])})))
"#;
    // Swapped values keep counts and sums: only the hash of whole rows tells.
    let Some(printed) = with_read_table(code) else { return };
    assert_eq!(printed, "[]\n1\n");
}

#[test]
fn values_have_one_spelling_whatever_arrow_type_holds_them() {
    let code = r#"
import pyarrow as pa
from read_table import plain
day = pa.array([0, None], pa.timestamp("ms", "UTC"))
print(plain(day.cast(pa.timestamp("us", "Europe/Berlin"))) == plain(day) == [0, None])
entries = pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64()))
pairs = pa.array([[{"key": "k", "value": 1}], None, []], pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.int64())])))
print(plain(entries) == plain(pairs), plain(pairs.slice(1)) == [None, ()])
print(plain(pa.array([{"b": 1, "a": None}, None]).slice(0, 1)))
print(plain(pa.array([b"\x00\xff"], pa.binary_view())), plain(pa.array([-0.0, 0.0])))
"#;
    let Some(printed) = with_read_table(code) else { return };
    assert_eq!(printed, "True\nTrue True\n[(('a', None), ('b', 1))]\n['00ff'] ['-0.0', '0.0']\n");
}
