//! The fuzz targets on stable Rust: every seed, every input that once broke one, and mutations of them.
//! `FUZZ_CORPUS=<folder>` writes the seeds there, a folder for each target; `FUZZ_REPLAY=<folder>` also replays the
//! files in such folders.

#[macro_use]
#[path = "../fuzz/targets/mod.rs"]
mod targets;

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use targets::{ALL, Target};

/// Time limit for one input: 100 ms in release builds. A debug build beside other tests takes longer.
const LIMIT: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(20)
} else {
    Duration::from_millis(100)
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz")
}

/// Returns the files of a folder, sorted by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect()
}

/// Returns inputs that once broke a target.
fn found(target: &Target) -> Vec<(String, Vec<u8>)> {
    files(&folder().join("found").join(target.name))
}

/// Returns inputs from the folder in `FUZZ_REPLAY`, such as libFuzzer's corpus.
fn more(target: &Target) -> Vec<(String, Vec<u8>)> {
    std::env::var_os("FUZZ_REPLAY")
        .map(|place| files(&Path::new(&place).join(target.name)))
        .unwrap_or_default()
}

/// Replays a target, and reports the input that broke it.
fn replay(name: &str) {
    let target = Target::named(name);
    let seeds = (target.seeds)();
    assert!(seeds.len() > 5, "{} seeds", seeds.len());
    let numbered = seeds
        .into_iter()
        .enumerate()
        .map(|(at, seed)| (format!("seed {at}"), seed));
    for (input, data) in numbered.chain(found(target)).chain(more(target)) {
        eprintln!("{name}: {input}, {} bytes", data.len());
        target.within(LIMIT, &data);
        // The first half is another input of the same kind.
        target.within(LIMIT, &data[..data.len() / 2]);
    }
    target.within(LIMIT, b"");
}

macro_rules! replays {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        /// Every target is replayed, and has its file for libFuzzer.
        #[test]
        fn none_is_forgotten() {
            let replayed = [$(stringify!($name)),*];
            let manifest = std::fs::read_to_string(folder().join("Cargo.toml")).unwrap();
            assert_eq!(replayed.len(), ALL.len());
            assert_eq!(manifest.matches("[[bin]]").count(), ALL.len());
            for target in ALL {
                assert!(replayed.contains(&target.name), "{}", target.name);
                let bin = format!("name = \"{0}\"\npath = \"fuzz_targets/{0}.rs\"", target.name);
                assert!(manifest.contains(&bin), "{}", target.name);
                let source = folder().join(format!("fuzz_targets/{}.rs", target.name));
                let source = std::fs::read_to_string(source).unwrap();
                assert!(source.contains(&format!("\"{}\"", target.name)), "{}", target.name);
            }
        }
    };
}

every_target!(replays);

/// Writes the seeds for libFuzzer to the folder in `FUZZ_CORPUS`.
#[test]
fn corpus() {
    let Some(place) = std::env::var_os("FUZZ_CORPUS") else {
        return;
    };
    for target in ALL {
        let place = Path::new(&place).join(target.name);
        std::fs::create_dir_all(&place).unwrap();
        let known = found(target).into_iter().map(|(_, data)| data);
        for seed in (target.seeds)().into_iter().chain(known) {
            let name: String = Sha256::digest(&seed)
                .iter()
                .take(10)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            std::fs::write(place.join(name), seed).unwrap();
        }
    }
}
