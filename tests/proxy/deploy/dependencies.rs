//! Checks of .deny.toml. `cargo deny` itself is run by `.ci/run`.

use super::read;

#[test]
fn the_rules_for_dependencies_are_strict() {
    let rules: toml::Table = read(".deny.toml").parse().expect("TOML");
    let allowed = rules["licenses"]["allow"].as_array().expect("a list");
    for licence in allowed {
        let licence = licence.as_str().expect("a name");
        assert!(!licence.contains("GPL"), "{licence}");
    }
    assert_eq!(rules["sources"]["unknown-registry"].as_str(), Some("deny"));
    assert_eq!(rules["sources"]["unknown-git"].as_str(), Some("deny"));
    assert!(
        rules["sources"]["allow-git"]
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    assert!(
        rules["advisories"]["ignore"]
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    let banned: Vec<_> = rules["bans"]["deny"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|b| b["crate"].as_str())
        .collect();
    for name in ["openssl", "openssl-sys", "native-tls"] {
        assert!(banned.contains(&Some(name)), "{name}");
    }
}

/// Every package of the lock file comes from crates.io, with its checksum.
#[test]
fn the_lock_file_names_one_source() {
    let lock: toml::Table = read("Cargo.lock").parse().expect("TOML");
    let packages = lock["package"].as_array().expect("packages");
    assert!(packages.len() > 50);
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let source = package.get("source").and_then(toml::Value::as_str);
        if [env!("CARGO_PKG_NAME"), "samewire-core"].contains(&name) {
            assert_eq!(source, None, "{name} is in this repository");
            continue;
        }
        assert_eq!(
            source,
            Some("registry+https://github.com/rust-lang/crates.io-index"),
            "{name}"
        );
        assert!(package.get("checksum").is_some(), "{name}");
    }
}
