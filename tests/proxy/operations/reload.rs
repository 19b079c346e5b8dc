//! Configuration changes while the process runs (faults O05, O06, O23).

use crate::clients::keys::{OTHER, entry, with};
use crate::responses::socket::prompted;
use crate::sim::IN_FORCE;
use crate::sim::prelude::*;
use std::process::Command;
use std::sync::atomic::AtomicBool;

const REFUSED: &str = "the configuration is not taken";
/// Configuration line that allows requests without a key.
const OPEN: &str = "insecure_no_auth = true\n";
const QUICK: &str = "[health]\ninterval = 0.02\ntimeout = 0.5\n";

/// Returns the configuration of these engines, named by their positions, each with further lines.
fn upstreams<'e>(engines: impl IntoIterator<Item = (usize, &'e Engine, &'e str)>) -> String {
    let one = |(n, engine, lines): (usize, &Engine, &str)| {
        format!(
            "[[upstream]]\nname = \"e{n}\"\nurl = \"{}\"\nengine = \"vllm\"\n{lines}\n",
            engine.url()
        )
    };
    engines.into_iter().map(one).collect()
}

/// Returns the configuration of the first `n` engines of a world.
fn first(world: &World, n: usize) -> String {
    format!(
        "{QUICK}{}",
        upstreams(
            world
                .engines()
                .enumerate()
                .take(n)
                .map(|(at, engine)| (at, engine, ""))
        )
    )
}

async fn stream_of(world: &World) -> Client {
    world.begin_until(&Request::stream(""), "\"a\"").await
}

fn held(gate: &Gate) -> Script {
    Script::stream().text("a").wait(gate).text("b").stop()
}

#[tokio::test]
async fn fault_o05_what_runs_goes_on_and_what_is_new_goes_elsewhere() {
    let gate = Gate::default();
    let engines = [held(&gate), Script::answer("new", 1)];
    let world = World::fleet_up(engines, Setup::new().config(QUICK), &["", "weight = 0"]).await;
    let mut running = stream_of(&world).await;
    let (engines, only) = (world.engines().collect::<Vec<_>>(), "");
    world
        .samewire
        .reconfigure(&format!("{QUICK}{}", upstreams([(1, engines[1], only)])))
        .await;
    for _ in 0..5 {
        assert!(world.stream("").await.text().contains("new"));
    }
    assert_eq!(world.attempt_counts(), [1, 5]);
    gate.open();
    running.event_with("\"b\"").await;
    running.event_with("[DONE]").await;
    drop(running);
    // Nothing is left of the removed engine: no probe, no connection, no metric.
    until("its connections are closed", || {
        engines[0].open_connections() == 0
    })
    .await;
    let quiet = || {
        let before = engines[0].probes().len();
        std::thread::sleep(Duration::from_millis(100));
        engines[0].probes().len() == before
    };
    until("it gets no request", quiet).await;
    let gone = |metrics: &str| !metrics.contains("samewire_upstream_up{upstream=\"e0\"");
    let metrics = world
        .samewire
        .metrics_when("its figures are gone", gone)
        .await;
    assert!(
        metrics.contains("samewire_upstream_up{upstream=\"e1\"} 1"),
        "{metrics}"
    );
    world
        .samewire
        .metric_becomes("samewire_config_last_reload_success", 1)
        .await;
    world.end().await;
}

/// An engine that takes over the name of an ejected one is not ejected, and its metric says so.
#[tokio::test]
async fn an_ejected_engine_that_is_replaced_leaves_no_open_circuit_behind() {
    let bad = Script::new().json("500 Internal Server Error", "{}");
    let good = || Engine::script(Script::answer("good", 1));
    let engines = vec![Engine::script(bad).await, good().await, good().await];
    let setup = Setup::new().config(QUICK).allow_errors();
    let world = World::fleet_up(engines, setup, &["", "", "weight = 0"]).await;
    let open = "samewire_upstream_circuit_open{upstream=\"e0\"}";
    for _ in 0..100 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    world.samewire.metric_becomes(open, 1).await;
    let (engines, only) = (world.engines().collect::<Vec<_>>(), "");
    let next = upstreams([(0, engines[2], only), (1, engines[1], only)]);
    world.samewire.reconfigure(&format!("{QUICK}{next}")).await;
    world.samewire.metric_becomes(open, 0).await;
    world.end().await;
}

/// A reload that adds an engine and gives the old one no more requests: the new one gets them before its models are known.
#[tokio::test]
async fn fault_o05_traffic_moves_to_an_engine_whose_models_are_not_known() {
    let old = Engine::script(Script::answer("old", 1)).await;
    let new = Engine::script(Script::answer("new", 1)).await;
    new.set_models(Script::new().hang());
    let file = |all: &[(&Engine, &str)]| {
        let upstream = |(engine, more): &(&Engine, &str)| {
            format!(
                "[[upstream]]\nurl = \"{}\"\nengine = \"vllm\"\n{more}\n",
                engine.url()
            )
        };
        all.iter().map(upstream).collect::<String>()
    };
    let samewire = Samewire::start(&Setup::new().config(&file(&[(&old, "")]))).await;
    let has_listed = || {
        old.probes()
            .iter()
            .any(|probe| probe.target == "/v1/models")
    };
    until("the old engine lists its models", has_listed).await;
    assert!(
        Request::stream("")
            .answer(samewire.proxy)
            .await
            .text()
            .contains("old")
    );
    samewire
        .reconfigure(&file(&[(&new, ""), (&old, "weight = 0")]))
        .await;
    for _ in 0..3 {
        assert!(
            Request::stream("")
                .answer(samewire.proxy)
                .await
                .text()
                .contains("new")
        );
    }
}

#[tokio::test]
async fn fault_o05_the_file_is_watched() {
    let engines = [Script::answer("old", 1), Script::answer("new", 1)];
    let world = World::fleet(
        engines,
        Setup::new().config(QUICK).allow_errors(),
        &["", "weight = 0"],
    )
    .await;
    assert!(world.stream("").await.text().contains("old"));
    let engines: Vec<_> = world.engines().collect();
    world.samewire.configure(&upstreams([
        (0, engines[0], "weight = 0"),
        (1, engines[1], ""),
    ]));
    until("it is seen", || world.samewire.count_logged(IN_FORCE) > 0).await;
    assert!(world.stream("").await.text().contains("new"));
    // Reported once, and not again while the file stays the same.
    world.samewire.configure("[[upstream]]");
    until("it is seen", || world.samewire.count_logged(REFUSED) > 0).await;
    world
        .samewire
        .metric_becomes("samewire_config_last_reload_success", 0)
        .await;
    world.samewire.signal("HUP");
    until("it is read again", || {
        world.samewire.count_logged(REFUSED) > 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(
        (
            world.samewire.count_logged(REFUSED),
            world.samewire.count_logged(IN_FORCE)
        ),
        (2, 1)
    );
    finish_broken(world).await;
}

/// Ends a world in which the test had a configuration refused.
async fn finish_broken(world: World) {
    let right = first(&world, 1);
    world.samewire.reconfigure(&right).await;
    world
        .samewire
        .metric_becomes("samewire_config_last_reload_success", 1)
        .await;
    world.end().await;
}

#[tokio::test]
async fn fault_o05_keys_come_and_go() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let keys = |lines: &str| {
        [
            entry(KEY, "name = \"a\"\nrequests_per_minute = 3"),
            lines.to_owned(),
        ]
        .concat()
    };
    let world = World::fleet(
        vec![engine],
        Setup::new().config(&keys(&entry(OTHER, ""))),
        &[],
    )
    .await;
    let urls = upstreams([(0, &world.engine, "")]);
    let other = with(&Request::stream(""), OTHER);
    let mut socket = Socket::open_with(
        world.proxy(),
        &with(&Socket::request("/v1/responses"), OTHER),
    )
    .await;
    assert!(!socket.exchange(&prompted("hello", "")).await.is_empty());
    assert_eq!(world.stream("").await.head.status, 200);
    assert_eq!(world.request(&other).await.head.status, 200);
    world
        .samewire
        .reconfigure(&format!("{}{urls}", keys("")))
        .await;
    assert_eq!(world.request(&other).await.head.status, 401);
    // Also on a connection that the key had opened.
    socket.send(&prompted("hello", "")).await;
    assert_eq!(socket.refused().await.1, "invalid_api_key");
    // A quota that is unchanged keeps its usage.
    for status in [200, 200, 429] {
        assert_eq!(world.stream("").await.head.status, status);
    }
    world
        .samewire
        .reconfigure(&format!("{}{urls}", keys(&entry(OTHER, ""))))
        .await;
    assert_eq!(world.request(&other).await.head.status, 200);
    assert_eq!(world.stream("").await.head.status, 429);
    let more = entry(KEY, "name = \"a\"\nrequests_per_minute = 30");
    world.samewire.reconfigure(&format!("{more}{urls}")).await;
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn fault_o05_options_limits_and_secrets_change() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let folder = Folder::new();
    let own = folder.key("sk-CANARY-first");
    let world = World::fleet(vec![engine], Setup::new().config(QUICK), &[&own]).await;
    let urls = upstreams([(0, &world.engine, own.as_str())]);
    let sent = |n: usize| {
        world.engine.attempts()[n]
            .header("authorization")
            .map(ToOwned::to_owned)
    };
    assert_eq!(world.stream("").await.head.status, 200);
    assert_eq!(sent(0).as_deref(), Some("Bearer sk-CANARY-first"));
    folder.key("sk-CANARY-second");
    until("it is seen", || world.samewire.count_logged(IN_FORCE) > 0).await;
    let answer = world.stream("").await;
    assert_eq!(sent(1).as_deref(), Some("Bearer sk-CANARY-second"));
    assert!(
        !answer.text().contains("\"usage\":null") && answer.text().contains("[DONE]"),
        "{}",
        answer.text()
    );
    let lines = "[limits]\nmax_body_bytes = 100\n[wire]\nkeepalive_seconds = 7\n";
    world.samewire.reconfigure(&format!("{lines}{urls}")).await;
    assert_eq!(
        world
            .stream(&format!(r#","user":"{}""#, "x".repeat(100)))
            .await
            .head
            .status,
        413
    );
    world
        .samewire
        .reconfigure(&format!(
            "threads = 7\n[limits]\nconnections = 9\n[store]\nplace = \"off\"\n{urls}"
        ))
        .await;
    let line = world
        .samewire
        .logged("changes of these take a restart", 1)
        .await
        .remove(0);
    assert!(
        line.contains("\"threads, limits.connections, store\""),
        "{line}"
    );
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

/// Clients that send requests one after the other until the end of the test.
struct Load {
    over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    asked: Arc<AtomicUsize>,
}

impl Load {
    /// Starts `clients` clients. Each tenth request is abandoned in the middle of its answer.
    fn of(clients: usize, to: SocketAddr, whole: &'static str) -> Self {
        let (over, asked) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let task = |n: usize| {
            let (over, asked) = (Arc::clone(&over), Arc::clone(&asked));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let turn = asked.fetch_add(1, Ordering::Relaxed);
                    let mut client = Request::stream("").send(to).await;
                    if turn % 10 == 9 {
                        client.head().await;
                        client.leave(if n.is_multiple_of(2) {
                            CloseKind::Rst
                        } else {
                            CloseKind::Fin
                        });
                        continue;
                    }
                    let answer = client.answer().await.with_status(200);
                    assert!(
                        answer.text().ends_with("data: [DONE]\n\n"),
                        "{}",
                        answer.text()
                    );
                    let said: Vec<_> = answer.text().split("\"content\":\"").skip(1).collect();
                    let said: String = said
                        .iter()
                        .filter_map(|part| part.split('"').next())
                        .collect();
                    assert_eq!(said, whole);
                }
            })
        };
        Self {
            tasks: (0..clients).map(task).collect(),
            over,
            asked,
        }
    }

    /// Lets all clients finish and returns the number of requests.
    async fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            within("a client ends", task)
                .await
                .expect("nothing was lost");
        }
        self.asked.load(Ordering::Relaxed)
    }
}

const WHOLE: &str = "t0 t1 t2 t3 t4 ";

fn paced() -> Script {
    let tokens = (0..5).fold(Script::stream(), |script, n| {
        script
            .sleep(Duration::from_millis(4))
            .text(&format!("t{n} "))
    });
    tokens.stop()
}

/// Ten reloads per second, for `SAMEWIRE_TEST_RELOAD_SECONDS` or three seconds: upstreams are added and removed,
/// weights, keys and limits change, and sometimes the file is invalid.
#[tokio::test]
async fn fault_o05_reloads_under_load() {
    let seconds = std::env::var("SAMEWIRE_TEST_RELOAD_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let engines = (0..4).map(|_| paced());
    let world = World::fleet_up(engines, Setup::new().config(QUICK).allow_errors(), &[]).await;
    let load = Load::of(12, world.proxy(), WHOLE);
    until("it flows", || load.asked.load(Ordering::Relaxed) > 50).await;
    let files = world.samewire.metric_now("process_open_fds").await;
    let until_when = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    let mut turn = 0_usize;
    while Instant::now() < until_when {
        turn += 1;
        let here = |n: usize| turn.is_multiple_of(5) || n != turn % 4;
        let weights = ["weight = 1", "weight = 3", "", "weight = 2"];
        let some = world.engines().enumerate().filter(|(n, _)| here(*n));
        let some = upstreams(some.map(|(n, engine)| (n, engine, weights[(n + turn) % 4])));
        let limits = format!(
            "[limits]\nrequests = {}\nmax_event_bytes = {}\n",
            900 + turn,
            5_000_000 + turn
        );
        match turn % 7 {
            3 => world
                .samewire
                .configure(&format!("{OPEN}[limits]\nrequests = \"{turn}\"\n{some}")),
            5 => world
                .samewire
                .configure(&format!("{}{QUICK}{some}", entry(KEY, ""))),
            _ => world
                .samewire
                .configure(&format!("{OPEN}{limits}{QUICK}{some}")),
        }
        world.samewire.signal("HUP");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = load.end().await;
    assert!(asked > 100, "{asked} requests");
    assert!(
        world.samewire.count_logged(IN_FORCE) > turn / 10,
        "{} of {turn}",
        world.samewire.count_logged(IN_FORCE)
    );
    assert!(world.samewire.count_logged(REFUSED) > 0);
    // All connections to engines have ended, except recently used ones.
    let open = async || world.samewire.metric("process_open_fds").await;
    eventually(&format!("no more than {files} open files"), async || {
        open().await <= files
    })
    .await;
    world
        .samewire
        .reconfigure(&format!("{OPEN}{}", first(&world, 4)))
        .await;
    world.end().await;
}

/// An upstream that is kept by a reload keeps its state: an engine that requested a pause still has it.
#[tokio::test]
async fn fault_o05_u23_what_stays_keeps_what_is_known_of_it() {
    let pushes = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    let engines = [Script::new().raw(pushes), Script::answer("a", 1)];
    let world = World::fleet_up(engines, Setup::new().config(QUICK), &[]).await;
    let send = async || assert_eq!(world.stream("").await.head.status, 200);
    while world.attempt_counts()[0] == 0 {
        send().await;
    }
    let engines: Vec<_> = world.engines().collect();
    let named = [
        (0, engines[0], ""),
        (1, engines[1], ""),
        (2, engines[0], ""),
    ];
    world
        .samewire
        .reconfigure(&format!("{QUICK}{}", upstreams(named)))
        .await;
    for _ in 0..20 {
        send().await;
    }
    assert_eq!(
        world
            .samewire
            .sum("samewire_upstream_attempts_total", &["upstream=\"e0\""])
            .await,
        1
    );
    world.end().await;
}

/// A file that has lost its keys, or all of its lines, does not open access that required a key.
#[tokio::test]
async fn fault_o06_o09_no_file_that_is_read_again_opens_a_door() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let world = World::fleet(
        vec![engine],
        Setup::new().config(&entry(KEY, "")).allow_errors(),
        &[],
    )
    .await;
    let right = upstreams([(0, &world.engine, "")]);
    let stranger = with(&Request::stream(""), OTHER);
    for (n, text) in [
        right.clone(),
        String::new(),
        format!("listen = \"127.0.0.1:1\"\n{right}"),
    ]
    .iter()
    .enumerate()
    {
        world.samewire.configure(text);
        world.samewire.signal("HUP");
        until("it is refused", || world.samewire.count_logged(REFUSED) > n).await;
        assert_eq!(world.request(&stranger).await.head.status, 401, "{text}");
        assert_eq!(world.stream("").await.head.status, 200, "{text}");
    }
    // Unless the file says so explicitly.
    world.samewire.reconfigure(&format!("{OPEN}{right}")).await;
    assert_eq!(world.request(&stranger).await.head.status, 200);
    world.end().await;
}

/// The state of an engine survives a change of the timeouts: an engine that serves a stream is up, however slow its
/// probes.
#[tokio::test]
async fn fault_o05_o19_how_engines_do_outlives_a_change() {
    let gate = Gate::default();
    let tokens = Script::stream()
        .text("a")
        .tok("t", 600, Duration::from_millis(10))
        .wait(&gate);
    let engine = Engine::script(tokens.stop()).await;
    let world = World::fleet_up(vec![engine], Setup::new().config(QUICK), &[]).await;
    let running = stream_of(&world).await;
    world.engine.set_health(Script::new().hang());
    let lines = "[timeouts]\nconnect = 1\n";
    let before = world.engine.probes().len();
    world
        .samewire
        .reconfigure(&format!("{lines}{}", first(&world, 1)))
        .await;
    until("it is probed", || world.engine.probes().len() > before + 5).await;
    assert_eq!(world.samewire.admin("/readyz").await.head.status, 200);
    let other = stream_of(&world).await;
    gate.open();
    drop((running, other));
    world.end().await;
}

/// A pipe in place of a file never reaches its end: neither requests nor the shutdown wait for it.
#[tokio::test]
async fn fault_o06_o24_a_file_that_never_ends_holds_up_nothing() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let world = World::fleet(vec![engine], Setup::new().config(QUICK).allow_errors(), &[]).await;
    let path = world.samewire.config();
    std::fs::remove_file(path).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    until_within("it is refused", Duration::from_secs(30), || {
        world.samewire.count_logged(REFUSED) > 0
    })
    .await;
    assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
    assert_eq!(world.stream("").await.head.status, 200);
    std::fs::remove_file(path).unwrap();
    let right = first(&world, 1);
    world.samewire.reconfigure(&right).await;
    world.end().await;
}

/// Returns the exit code and the messages of `check` for the world's configuration file.
fn check(samewire: &Samewire) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.args([
        "check",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--config",
    ]);
    let output = command.arg(samewire.config()).env_clear().output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// An invalid file changes nothing, and is reported as `check` reports it.
#[tokio::test]
async fn fault_o06_what_is_wrong_changes_nothing() {
    let world = World::fleet(
        [Script::answer("a", 1)],
        Setup::new().config(QUICK).allow_errors(),
        &[],
    )
    .await;
    let canary = "sk-CANARY-9d2b";
    let right = upstreams([(0, &world.engine, "")]);
    let folder = Folder::new();
    let open = folder.file("open", canary);
    let empty = folder.write("empty", "");
    let mut wrong: Vec<String> = vec![
        String::new(),
        canary.to_owned(),
        format!("[limits\n{right}"),
        format!("{right}{right}"),
        format!("{right}api_key_file = {open:?}\n"),
        format!("{right}api_key_file = {empty:?}\n"),
        format!("{right}api_key_file = \"/nowhere/{canary}\"\n"),
        "[[upstream]]\nurl = \"ftp://a\"".to_owned(),
        format!("[[upstream]]\nurl = \"http://u:{canary}@a\""),
        format!("{right}weight = 0\n"),
        format!("{}{}{right}", entry(KEY, ""), entry(KEY, "")),
        format!("[[auth.key]]\nhash = \"{canary}\"\n{right}"),
        format!("[[model]]\nname = \"a\"\nupstreams = [\"another\"]\n{right}"),
        format!("insecure_no_auth = true\n{}{right}", entry(KEY, "")),
        format!("[tls]\ncert_file = \"/nowhere\"\n{right}"),
    ];
    let key_of_table =
        |table: &str, key: &str| format!("[{table}]\n{key} = {{ x = \"{canary}\" }}\n{right}");
    for (table, keys) in [
        (
            "limits",
            &[
                "requests",
                "max_body_bytes",
                "connections",
                "max_event_bytes",
                "max_tools",
            ][..],
        ),
        (
            "timeouts",
            &[
                "connect",
                "first_token",
                "drain",
                "settle",
                "inter_token",
                "total_stream",
                "client_head",
            ],
        ),
        ("health", &["interval", "timeout", "down_after", "up_after"]),
        (
            "retry",
            &["max_attempts", "budget_percent", "budget_per_second"],
        ),
        ("affinity", &["by"]),
        ("log", &["level", "content"]),
        ("trace", &["endpoint"]),
        ("store", &["place", "ttl", "required"]),
        (
            "wire",
            &["reasoning_field", "keepalive_seconds", "model_name"],
        ),
        ("azure", &["force_store", "nothing"]),
        ("nothing", &["nothing"]),
        ("requests", &["nothing", "allowed_fields"]),
        ("compaction", &["instructions"]),
    ] {
        wrong.extend(keys.iter().map(|key| key_of_table(table, key)));
    }
    assert!(wrong.len() >= 50, "{} files", wrong.len());
    for (n, text) in wrong.iter().enumerate() {
        world.samewire.configure(text);
        let (code, told) = check(&world.samewire);
        assert_eq!(code, Some(2), "{text}");
        world.samewire.signal("HUP");
        until("it is refused", || world.samewire.count_logged(REFUSED) > n).await;
        let lines = world.samewire.logs();
        let line = lines.iter().rfind(|line| line.contains(REFUSED)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let logged = line["mistakes"]
            .as_str()
            .unwrap_or_else(|| panic!("{line}"));
        let told: Vec<_> = told.lines().collect();
        assert_eq!(logged.lines().collect::<Vec<_>>(), told, "{text}");
        assert!(!logged.contains(canary), "{logged}");
        world
            .samewire
            .metric_becomes("samewire_config_last_reload_success", 0)
            .await;
        assert_eq!(world.stream("").await.head.status, 200, "{text}");
    }
    assert_eq!(world.samewire.count_logged(IN_FORCE), 0);
    finish_broken(world).await;
}

/// Engines are added and removed under load, from one to four and back: new ones get their share gradually, removed
/// ones finish their requests.
#[tokio::test]
async fn fault_o23_engines_come_and_go_under_load() {
    let engines = (0..4).map(|_| paced());
    let world = World::fleet_up(
        engines,
        Setup::new().config(QUICK),
        &["", "weight = 0", "weight = 0", "weight = 0"],
    )
    .await;
    let one = first(&world, 1);
    world.samewire.reconfigure(&one).await;
    let load = Load::of(12, world.proxy(), WHOLE);
    until("it flows", || world.attempt_counts()[0] > 50).await;
    let four = first(&world, 4);
    world.samewire.reconfigure(&four).await;
    let before: usize = world.attempt_counts().iter().sum();
    let began = Instant::now();
    until_within("all have some of it", Duration::from_secs(30), || {
        world.attempt_counts().iter().all(|share| *share > 10)
    })
    .await;
    let shares = world.attempt_counts();
    let since = shares.iter().sum::<usize>() - before;
    // Before ten seconds have passed, no new engine has its full share.
    let is_early = began.elapsed() < Duration::from_secs(5);
    assert!(
        !is_early || shares[1..].iter().all(|share| share * 4 < since * 2),
        "{shares:?} of {since} at once"
    );
    world.samewire.reconfigure(&one).await;
    let gone = world.attempt_counts();
    let before = gone[0];
    until("the one goes on", || {
        world.attempt_counts()[0] > before + 30
    })
    .await;
    // A request whose engine was chosen just before the reload arrives just after it.
    let late = world
        .attempt_counts()
        .iter()
        .zip(&gone)
        .skip(1)
        .map(|(now, then)| now - then)
        .sum::<usize>();
    assert!(late <= 12, "{late} requests for those that are gone");
    load.end().await;
    world.end().await;
}
