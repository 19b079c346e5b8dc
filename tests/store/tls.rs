//! TLS to PostgreSQL: the guarantees of each `sslmode`, against a server with TLS and one without.

use crate::places::ROOMY;
use crate::postgres::{connect, database, with_tls};
use crate::responses::{NOW, key, over};
use samewire::store::{Store, StoreError, StoreLocation};

async fn open(url: &str) -> Result<Store, StoreError> {
    Store::open(&StoreLocation::Postgres(url.to_owned()), ROOMY)
        .await
        .map(Option::unwrap)
}

/// Opens a store, which must fail, and returns the reason.
async fn refused(url: &str) -> String {
    match open(url).await {
        Err(StoreError::Unavailable(why)) => why,
        Err(other) => panic!("{url}: {other}"),
        Ok(_) => panic!("{url} opens"),
    }
}

/// Opens a store in this database, which must work. Returns true if the server reports that the connection is
/// encrypted.
async fn encrypted(database: &str, more: &str) -> bool {
    let store = open(&format!("{database}?{more}"))
        .await
        .unwrap_or_else(|error| panic!("{more}: {error}"));
    store.create(over("resp_1"), NOW).await.unwrap();
    assert_eq!(
        store.get(key("resp_1"), NOW).await.unwrap().key,
        key("resp_1")
    );
    store.delete(key("resp_1"), NOW).await.unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE application_name = 'samewire' AND datname = current_database()";
    let rows = connect(database).await.query(sql, &[]).await.unwrap();
    assert!(!rows.is_empty(), "the store is connected");
    rows.iter().all(|row| row.get(0))
}

/// Creates a database, and returns its URL by the address and by the host name of the certificate.
async fn fresh(name: &str) -> (String, String) {
    let (server, _) = with_tls();
    connect(server)
        .await
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await
        .unwrap();
    let (server, _) = server.rsplit_once('/').unwrap();
    let address = format!("{server}/{name}");
    let host = address.replace("127.0.0.1", "localhost");
    (address, host)
}

#[tokio::test]
async fn a_server_with_tls() {
    let (address, host) = fresh("tls").await;
    let authority = format!(
        "sslrootcert={}",
        with_tls().1.join("authority.crt").display()
    );
    for more in ["", "sslmode=prefer", "sslmode=require"] {
        assert!(encrypted(&address, more).await, "{more}");
    }
    assert!(!encrypted(&address, "sslmode=disable").await);
    // The certificate names the host, not the address.
    for mode in ["require", "verify-ca"] {
        assert!(
            encrypted(&address, &format!("sslmode={mode}&{authority}")).await,
            "{mode}"
        );
    }
    assert!(
        encrypted(
            &host,
            &format!("{authority}&sslmode=verify-full&connect_timeout=5")
        )
        .await
    );
    let why = refused(&format!("{address}?sslmode=verify-full&{authority}")).await;
    assert!(why.contains("certificate not valid for name"), "{why}");
}

#[tokio::test]
async fn a_server_whose_certificate_nobody_vouches_for() {
    let (_, host) = fresh("distrusted").await;
    let other = format!("sslrootcert={}", with_tls().1.join("other.crt").display());
    for more in [
        format!("sslmode=verify-full&{other}"),
        format!("sslmode=verify-ca&{other}"),
        format!("sslmode=require&{other}"),
    ] {
        let why = refused(&format!("{host}?{more}")).await;
        assert!(
            why.contains("TLS") && why.contains("certificate"),
            "{more}: {why}"
        );
    }
    // The system's authorities, if there are any, do not include this one.
    let why = refused(&format!("{host}?sslmode=verify-full")).await;
    assert!(
        why.contains("certificate") || why.contains("sslrootcert"),
        "{why}"
    );
}

#[tokio::test]
async fn what_cannot_be_had_is_told() {
    let plain = database().await;
    assert!(!encrypted(&plain, "sslmode=prefer").await);
    for mode in [
        "require",
        "verify-ca&sslrootcert=/etc/hostname",
        "verify-full&sslrootcert=/nowhere/ca.crt",
    ] {
        let why = refused(&format!("{plain}?sslmode={mode}")).await;
        let expected = match mode {
            "require" => "server does not support TLS",
            mode => mode.rsplit_once('=').unwrap().1,
        };
        assert!(why.contains(expected), "{mode}: {why}");
    }
    let why = refused(&format!("{plain}?sslmode=on")).await;
    assert!(why.contains("verify-full"), "{why}");
}
