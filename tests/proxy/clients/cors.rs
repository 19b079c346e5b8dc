//! Pages in browsers: which may call the API, open WebSockets, and reach the admin listener (faults C17b).

use crate::clients::keys::entry;
use crate::sim::prelude::*;
use crate::sim::{ErrorBody, H2Client, Head};

const APP: &str = "https://app.example";
const FOREIGN: &str = "https://evil.example";
const LISTED: &str = "[cors]\norigins = [\"https://App.example:443\", \"http://localhost:3000\"]";
const ANY: &str = "[cors]\norigins = [\"*\"]";
/// Headers that the official library sends in a browser.
const HEADERS: &str =
    "authorization,content-type,openai-organization,x-stainless-arch,x-stainless-retry-count";

fn preflight(target: &str, origin: &str) -> Request {
    Request::new("OPTIONS", target)
        .without("authorization")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", HEADERS)
}

/// Returns the CORS headers of a response, sorted by name.
fn shared(head: &Head) -> Vec<(String, String)> {
    let is_shared = |name: &str| name.starts_with("access-control-") || name == "vary";
    let mut all: Vec<_> = head
        .headers
        .iter()
        .filter(|(name, _)| is_shared(name))
        .cloned()
        .collect();
    all.sort();
    all
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

const VARY: (&str, &str) = (
    "vary",
    "origin, access-control-request-method, access-control-request-headers",
);

#[tokio::test]
async fn fault_c17b_preflights_of_listed_pages_need_no_key() {
    let world = World::plain(Setup::new().config(&entry(KEY, "")).config(LISTED)).await;
    let targets = [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/resp_1",
        "/v1/messages",
        "/v1/audio/transcriptions",
        "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        "/v1/nothing",
        "/health",
    ];
    for target in targets {
        for origin in [APP, "http://localhost:3000"] {
            let answer = world.request(&preflight(target, origin)).await;
            assert_eq!((answer.head.status, answer.text()), (204, ""), "{target}");
            let expected = pairs(&[
                ("access-control-allow-credentials", "true"),
                ("access-control-allow-headers", HEADERS),
                ("access-control-allow-methods", "GET, POST, DELETE"),
                ("access-control-allow-origin", origin),
                ("access-control-max-age", "600"),
                VARY,
            ]);
            assert_eq!(shared(&answer.head), expected, "{target}");
            assert_eq!(answer.head.header("connection"), None);
        }
        for origin in [
            FOREIGN,
            "null",
            "https://app.example:8443",
            "http://app.example",
            "https://app.example.evil",
        ] {
            let answer = world.request(&preflight(target, origin)).await;
            assert_eq!(
                answer.failure(),
                "403 permission_error",
                "{target} {origin}"
            );
            let message = answer.fault().message;
            assert!(
                message.contains("cors.origins") && message.contains(origin),
                "{message}"
            );
            assert_eq!(
                shared(&answer.head),
                pairs(&[("vary", "origin")]),
                "{target} {origin}"
            );
        }
    }
    // A request without the headers of a preflight is treated like any other method.
    for name in ["origin", "access-control-request-method"] {
        let request = preflight("/v1/models", APP).without(name);
        assert_eq!(
            world.request(&request).await.head.status,
            401,
            "without {name}"
        );
    }
    let local =
        preflight("/v1/models", APP).header("access-control-request-private-network", "true");
    assert_eq!(
        world
            .request(&local)
            .await
            .head
            .header("access-control-allow-private-network"),
        Some("true")
    );
    // A preflight with a body is answered without reading on.
    let answer = world
        .request(&preflight("/v1/models", APP).body("abc"))
        .await;
    assert_eq!(
        (answer.head.status, answer.head.header("connection")),
        (204, Some("close"))
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c17b_any_page_without_credentials() {
    let world = World::configured("[cors]\norigins = [\"*\", \"https://app.example\"]").await;
    for origin in [FOREIGN, "null"] {
        let answer = world
            .request(&preflight("/v1/chat/completions", origin))
            .await;
        let expected = pairs(&[
            ("access-control-allow-headers", HEADERS),
            ("access-control-allow-methods", "GET, POST, DELETE"),
            ("access-control-allow-origin", "*"),
            ("access-control-max-age", "600"),
            VARY,
        ]);
        assert_eq!(shared(&answer.head), expected, "{origin}");
        let answer = world
            .request(&Request::stream("").header("origin", origin))
            .await
            .with_status(200);
        assert_eq!(answer.head.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.head.header("access-control-allow-credentials"), None);
        let socket = Socket::request("/v1/responses").header("origin", origin);
        drop(Socket::open_with(world.proxy(), &socket).await);
    }
    // A page that is listed has more access.
    let answer = world
        .request(&Request::stream("").header("origin", APP))
        .await;
    assert_eq!(answer.head.header("access-control-allow-origin"), Some(APP));
    assert_eq!(
        answer.head.header("access-control-allow-credentials"),
        Some("true")
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c17b_over_http2_the_same_is_said() {
    let world = World::plain(Setup::new().config(&entry(KEY, "")).config(LISTED)).await;
    let mut two = H2Client::open(world.proxy()).await;
    let answer = two.request(&preflight("/v1/chat/completions", APP)).await;
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.headers["access-control-allow-origin"], APP);
    assert_eq!(answer.headers["access-control-allow-headers"], HEADERS);
    assert_eq!(
        two.request(&preflight("/v1/chat/completions", FOREIGN))
            .await
            .status,
        403
    );
    let answer = two
        .request(&Request::stream("").header("origin", APP))
        .await;
    assert_eq!(
        (
            answer.status,
            &answer.headers["access-control-allow-origin"]
        ),
        (200, &APP.parse().unwrap())
    );
    let form = Request::stream("").without("content-type");
    assert_eq!(
        two.request(&form.clone().header("origin", FOREIGN))
            .await
            .status,
        403
    );
    assert_eq!(
        two.request(&form.header("origin", "http://localhost"))
            .await
            .status,
        200
    );
    assert_eq!(
        two.request(&Request::get("/health").without("authorization"))
            .await
            .status,
        200
    );
    drop(two);
    world.end().await;
}

#[tokio::test]
async fn fault_c17b_off_is_as_before() {
    let world = World::plain(Setup::new()).await;
    for target in ["/v1/chat/completions", "/v1/models", "/rerank"] {
        let answer = world.request(&preflight(target, APP)).await;
        assert_eq!(
            (answer.head.status, shared(&answer.head)),
            (405, Vec::new()),
            "{target}"
        );
        assert!(answer.head.header("allow").is_some());
    }
    let answer = world
        .request(&Request::stream("").header("origin", APP))
        .await;
    assert_eq!(
        (answer.head.status, shared(&answer.head)),
        (200, Vec::new())
    );
    world.end().await;
}

/// A page can read the response in every case, errors included.
#[tokio::test]
async fn fault_c17b_answers_and_errors_can_be_read() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let limits = "[limits]\nmax_body_bytes = 2000";
    let world = World::start(
        engine,
        Setup::new()
            .config(&entry(KEY, "requests_per_minute = 6"))
            .config(limits)
            .config(LISTED),
    )
    .await;
    let stream = Request::stream("");
    let long = Request::stream(&format!(r#","user":"{}""#, "x".repeat(3000)));
    let table = [
        (200, stream.clone()),
        (200, Request::plain("")),
        (200, Request::get("/v1/models")),
        (401, stream.clone().without("authorization")),
        (404, stream.clone().target("/v1/nothing")),
        (405, Request::get("/v1/chat/completions")),
        (413, long),
        (
            415,
            stream
                .clone()
                .without("content-type")
                .header("content-type", "text/html"),
        ),
        (400, Request::chat("{")),
        (414, Request::get(&format!("/v1/{}", "x".repeat(9000)))),
        (200, Request::get("/health")),
    ];
    for (status, request) in table {
        let answer = world.request(&request.header("origin", APP)).await;
        assert_eq!(answer.head.status, status, "{}", answer.text());
        let header = |name| {
            answer
                .head
                .header(name)
                .unwrap_or_else(|| panic!("{status}: no {name}"))
                .to_owned()
        };
        assert_eq!(header("access-control-allow-origin"), APP, "{status}");
        assert_eq!(header("access-control-allow-credentials"), "true");
        assert_eq!(header("vary"), "origin");
        let exposed = header("access-control-expose-headers");
        let exposed: Vec<&str> = exposed.split(", ").collect();
        // Every informative header is exposed, except those that pages may read anyway and those about the
        // connection.
        let others = [
            "content-type",
            "content-length",
            "cache-control",
            "date",
            "connection",
            "vary",
        ];
        for (name, _) in &answer.head.headers {
            let is_ours = !others.contains(&name.as_str()) && !name.starts_with("access-control-");
            let is_hop = ["transfer-encoding", "x-accel-buffering"].contains(&name.as_str());
            assert!(
                !is_ours || is_hop || exposed.contains(&name.as_str()),
                "{status}: {name} of {exposed:?}"
            );
        }
        for name in [
            "x-request-id",
            "retry-after",
            "x-ratelimit-remaining-requests",
            "x-samewire-attempts",
        ] {
            assert!(exposed.contains(&name), "{name}");
        }
    }
    let limited = loop {
        let answer = world.request(&stream.clone().header("origin", APP)).await;
        if answer.head.status != 200 {
            break answer;
        }
    };
    assert_eq!(limited.head.status, 429, "{}", limited.text());
    assert_eq!(
        limited.head.header("access-control-allow-origin"),
        Some(APP)
    );
    assert!(
        limited.head.header("retry-after").is_some()
            && limited.head.header("x-ratelimit-limit-requests").is_some()
    );
    // The request of an unlisted page is served, and its browser hides the response from the page.
    let answer = world
        .request(&Request::get("/v1/models").header("origin", FOREIGN))
        .await;
    assert_eq!(
        (answer.head.status, shared(&answer.head)),
        (200, pairs(&[("vary", "origin")]))
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c17b_errors_of_engines_can_be_read() {
    let scripts = vec![
        Script::new().whole(
            "400 Bad Request",
            "",
            r#"{"error":{"message":"no","type":"BadRequestError","code":400}}"#,
        ),
        Script::stream().text("a").end(),
    ];
    let world = World::start(
        Engine::in_turn(scripts),
        Setup::new().config(ANY).allow_errors(),
    )
    .await;
    let answer = world
        .request(&Request::stream("").header("origin", APP))
        .await;
    assert_eq!(
        (
            answer.head.status,
            answer.head.header("access-control-allow-origin")
        ),
        (400, Some("*"))
    );
    let answer = world
        .request(&Request::stream("").header("origin", APP))
        .await;
    assert_eq!(
        (
            answer.head.status,
            answer.head.header("access-control-allow-origin")
        ),
        (200, Some("*"))
    );
    assert!(
        answer.text().contains("upstream_incomplete"),
        "{}",
        answer.text()
    );
    world.end().await;
}

/// Forms of foreign pages are refused: browsers submit them without a preflight request, and an engine would work
/// for them.
#[tokio::test]
async fn fault_c17b_forms_of_foreign_pages_are_refused() {
    let form = |kind: Option<&str>| {
        let request = Request::stream("").without("content-type");
        kind.into_iter().fold(request, |request, kind| {
            request.header("content-type", kind)
        })
    };
    let kinds = [
        None,
        Some("application/x-www-form-urlencoded"),
        Some("Text/Plain;charset=UTF-8"),
    ];
    for config in ["", LISTED] {
        let world = World::configured(config).await;
        for origin in [FOREIGN, "null", "http://localhost:8080"] {
            for kind in kinds {
                let answer = world.request(&form(kind).header("origin", origin)).await;
                let ErrorBody { message, .. } = answer.fault();
                assert_eq!(answer.head.status, 403, "{origin} {kind:?}: {message}");
                assert!(message.contains("cors.origins"), "{message}");
            }
            let upload =
                form(Some("multipart/form-data; boundary=x")).target("/v1/audio/transcriptions");
            assert_eq!(
                world
                    .request(&upload.header("origin", origin))
                    .await
                    .head
                    .status,
                403
            );
            let cancel = form(None).target("/v1/responses/resp_1/cancel").body("");
            assert_eq!(
                world
                    .request(&cancel.header("origin", origin))
                    .await
                    .head
                    .status,
                403
            );
        }
        assert_eq!(world.engine.attempt_count(), 0);
        // Pages of samewire's own address, and programs that are not web pages.
        for origin in [
            "http://localhost",
            "app://obsidian.md",
            "chrome-extension://abc",
        ] {
            let answer = world.request(&form(None).header("origin", origin)).await;
            assert_eq!(answer.head.status, 200, "{origin}");
        }
        // Behind a reverse proxy that changes the host header, the browser itself reports the same origin.
        let proxied = form(None)
            .header("origin", FOREIGN)
            .header("sec-fetch-site", "same-origin");
        assert_eq!(world.request(&proxied).await.head.status, 200);
        // JSON requires a preflight, so no conforming browser sends this from a foreign page.
        assert_eq!(
            world
                .request(&Request::stream("").header("origin", FOREIGN))
                .await
                .head
                .status,
            200
        );
        let listed = world
            .request(&form(kinds[1]).header("origin", APP))
            .await
            .head
            .status;
        assert_eq!(listed, if config.is_empty() { 403 } else { 200 });
        world.end().await;
    }
}

#[tokio::test]
async fn fault_c17b_the_list_decides_about_websockets_and_follows_a_reload() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let file = |origins: &str| {
        format!(
            "[cors]\norigins = [{origins}]\n[[upstream]]\nurl = \"{}\"\nengine = \"vllm\"\n",
            engine.url()
        )
    };
    let samewire = Samewire::start(&Setup::new().config(&file("\"https://app.example\""))).await;
    let opens = async |origin: Option<&str>| {
        let request = Socket::request("/v1/responses");
        let request = origin
            .into_iter()
            .fold(request, |request, origin| request.header("origin", origin));
        let opened = Socket::over(Client::connect(samewire.proxy).await, &request.bytes()).await;
        opened.map_or_else(|answer| answer.head.status, |_| 101)
    };
    let asks = async |origin| {
        preflight("/v1/models", origin)
            .answer(samewire.proxy)
            .await
            .head
            .status
    };
    for (origin, status) in [
        (None, 101),
        (Some(APP), 101),
        (Some("http://localhost"), 101),
        (Some(FOREIGN), 403),
        (Some("null"), 403),
    ] {
        assert_eq!(opens(origin).await, status, "{origin:?}");
    }
    assert_eq!((asks(APP).await, asks(FOREIGN).await), (204, 403));
    samewire.reconfigure(&file(&format!("\"{FOREIGN}\""))).await;
    assert_eq!((asks(APP).await, asks(FOREIGN).await), (403, 204));
    assert_eq!(
        (opens(Some(APP)).await, opens(Some(FOREIGN)).await),
        (403, 101)
    );
    samewire.reconfigure(&file("")).await;
    assert_eq!((asks(APP).await, asks(FOREIGN).await), (405, 405));
    assert_eq!((opens(Some(APP)).await, opens(None).await), (403, 101));
}

/// Foreign pages and rebound DNS names get nothing from the admin listener, and change nothing.
#[tokio::test]
async fn fault_c17b_the_admin_listener_answers_no_foreign_page() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let file = |hosts: &str| {
        format!(
            "[timeouts]\nsettle = 0.1\n[admin]\nhosts = [{hosts}]\n[[upstream]]\nurl = \"{}\"\nengine = \"vllm\"\n",
            engine.url()
        )
    };
    let samewire = Samewire::start(&Setup::new().config(&file(""))).await;
    let own = format!("http://{}", samewire.admin);
    let to = |method: &str, target: &str| {
        let request = Request::new(method, target)
            .without("authorization")
            .without("host");
        request
            .header("host", &samewire.admin.to_string())
            .header("content-length", "0")
    };
    let status = async |request: Request| {
        let answer = request.answer(samewire.admin).await;
        assert!(
            answer.head.status != 403 || answer.text().contains("admin.hosts"),
            "{}",
            answer.text()
        );
        answer.head.status
    };
    until("it is ready", || engine.probes().len() > 1).await;
    let image = to("GET", "/drain/wait")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-dest", "image");
    let others = [
        image.clone(),
        image
            .without("sec-fetch-site")
            .header("sec-fetch-site", "same-site"),
        to("GET", "/drain/wait").header("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        to("POST", "/drain").header("origin", FOREIGN),
        to("POST", "/drain").header("origin", "null"),
        to("POST", "/drain").header("origin", "http://127.0.0.1:8080"),
        to("POST", "/drain/undo").header("origin", FOREIGN),
        to("POST", "/drain")
            .without("host")
            .header("host", "evil.example:9090")
            .header("origin", "http://evil.example:9090"),
        to("GET", "/metrics").header("sec-fetch-site", "cross-site"),
        to("GET", "/metrics")
            .without("host")
            .header("host", "samewire.monitoring.svc:9090"),
        to("GET", "/nothing").header("origin", FOREIGN),
    ];
    for request in others {
        let told = format!("{request:?}");
        assert_eq!(status(request).await, 403, "{told}");
    }
    for target in ["/drain", "/drain/undo"] {
        assert_eq!(status(to("GET", target)).await, 405, "{target}");
    }
    assert_eq!(status(to("GET", "/livez")).await, 200);
    assert_eq!(
        samewire.admin("/readyz").await.head.status,
        200,
        "nothing has drained it"
    );
    // The admin listener's own pages are allowed, and programs of all kinds.
    for (name, value) in [
        ("origin", own.as_str()),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        ("user-agent", "Prometheus/3.7.0"),
    ] {
        assert_eq!(
            status(to("GET", "/metrics").header(name, value)).await,
            200,
            "{name}: {value}"
        );
    }
    for host in [
        "localhost:9090",
        "10.0.0.7:9090",
        "[::1]:9090",
        "pod.localhost",
    ] {
        let request = to("GET", "/readyz").without("host").header("host", host);
        assert_eq!(status(request).await, 200, "{host}");
    }
    samewire
        .reconfigure(&file("\"Samewire.monitoring.svc\""))
        .await;
    // The first refusal is told, and no other.
    let told = samewire
        .logged("the admin listener refused a request", 1)
        .await;
    assert!(!told[0].contains("samewire.monitoring.svc"), "{told:?}");
    let scrape = to("GET", "/metrics")
        .without("host")
        .header("host", "samewire.monitoring.svc:9090");
    assert_eq!(status(scrape.clone()).await, 200);
    let page = scrape.header("origin", "https://samewire.monitoring.svc");
    assert_eq!(status(page).await, 200, "behind a proxy that speaks TLS");
    // A drain can still be started by requests such as engines' hooks send.
    assert_eq!(
        status(to("GET", "/drain/wait").header("user-agent", "kube-probe/1.34")).await,
        200
    );
    assert_eq!(samewire.admin("/readyz").await.head.status, 503);
}

/// Without keys, a page whose name leads to this machine (DNS rebinding) reaches nothing, while the names of private
/// networks need no entry.
#[tokio::test]
async fn fault_c17b_a_rebound_name_reaches_nothing_without_keys() {
    let answering = || Engine::script(Script::answer("a", 1));
    let with_host =
        |request: &Request, host: &str| request.clone().without("host").header("host", host);
    let plain = Request::plain("").without("authorization");
    let requests = [
        plain.clone(),
        Request::get("/v1/models").without("authorization"),
        Request::get("/v1/responses/resp_1").without("authorization"),
        Request::get("/v1/responses")
            .without("authorization")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-version", "13"),
    ];
    let world = World::start(
        answering(),
        Setup::new().config("[cors]\nhosts = [\"llm.example\"]"),
    )
    .await;
    for request in &requests {
        let answer = world
            .request(&with_host(request, "evil.example:8080"))
            .await
            .with_status(403);
        assert!(
            answer.text().contains("cors.hosts (SAMEWIRE_CORS__HOSTS)"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(world.engine.attempt_count(), 0);
    for host in [
        "127.0.0.1:8080",
        "localhost",
        "samewire:8080",
        "samewire.llm.svc",
        "llm.example",
    ] {
        assert_eq!(
            world.request(&with_host(&plain, host)).await.head.status,
            200,
            "{host}"
        );
    }
    world.end().await;
    // With keys, and where every page may call the API, the name decides nothing.
    for (setup, request) in [
        (Setup::new().config(&entry(KEY, "")), Request::plain("")),
        (Setup::new().config(ANY), plain.clone()),
    ] {
        let engine = answering();
        assert_eq!(
            World::answer(engine, setup, &with_host(&request, "evil.example"))
                .await
                .head
                .status,
            200
        );
    }
}
