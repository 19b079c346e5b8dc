//! Addresses of media in a request: which of them an engine may be sent to fetch (faults C34).
//!
//! Takes: an address as the client wrote it, and the kind of media expected there. Gives: the same address in one
//! spelling, read once, so that the engine reads exactly the address that was judged here. Never: fetches,
//! resolves a name, repeats an address.

use super::refusals::refused;
use crate::json::Text;
use crate::wire::fault::{Failure, Fault};
use bytes::BytesMut;
use url::{Host, Url};

/// Maximum length of an address that does not carry its data itself, in bytes.
const LONGEST: usize = 8 << 10;
/// Maximum length of the head of a data URL, before its data, in bytes.
const HEAD: usize = 256;

/// Policy on media addresses: the sources from which an engine may fetch media on behalf of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Media {
    /// Addresses pass unchecked: the request has already been answered.
    Unchecked,
    /// Data URLs, and addresses on any public host.
    #[default]
    Public,
    /// Data URLs only.
    Data,
    /// Data URLs, and addresses on these hosts.
    Hosts(Vec<Host<String>>),
}

/// Kind of media expected at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Audio,
    Video,
    /// Any kind.
    File,
}

/// Permitted address, in canonical spelling, so that the engine cannot read it as a different one.
#[derive(Clone, Debug)]
pub(super) enum Address<'a> {
    /// The client's spelling, which already is canonical.
    Unchanged(Text<'a>),
    /// The rewritten address, and the data of a data URL, which stays unchanged.
    Rewritten(String, Text<'a>),
}

impl Address<'_> {
    /// Appends the address to `out`, JSON-escaped without quotes.
    pub(super) fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Unchanged(text) => text.write(out),
            Self::Rewritten(front, rest) => {
                Text::plain(front).write(out);
                rest.write(out);
            }
        }
    }
}

impl MediaKind {
    fn fits(self, essence: &str) -> bool {
        match self {
            Self::Image => essence.starts_with("image/"),
            Self::Audio => essence.starts_with("audio/"),
            Self::Video => essence.starts_with("video/"),
            Self::File => true,
        }
    }
}

impl Media {
    /// Returns the policy that permits exactly these hosts, given as names or IP addresses.
    ///
    /// # Errors
    /// Fails with the first entry that is no host.
    pub fn hosts<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let parse = |name: &'a str| {
            // An IPv6 address may be given in brackets, as in a URL, or bare.
            let bracketed = format!("[{name}]");
            let written = if name.matches(':').count() > 1 && !name.starts_with('[') {
                &bracketed
            } else {
                name
            };
            Host::parse(written).map_err(|_| name)
        };
        names
            .into_iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self::Hosts)
    }

    /// Judges an address; `param` returns its place for the error. Fails on an address that the policy forbids.
    pub(super) fn judge<'a>(
        &self,
        text: Text<'a>,
        kind: MediaKind,
        param: impl FnOnce() -> String,
    ) -> Result<Address<'a>, Failure> {
        if *self == Self::Unchecked {
            return Ok(Address::Unchanged(text));
        }
        match judge_data_url(text, kind).unwrap_or_else(|| self.judge_remote(text)) {
            Ok(address) => Ok(address),
            Err((fault, must)) => Err(refused(fault, param(), must)),
        }
    }

    /// Judges a value that is either an address or the content itself in base64, which is accepted unchecked.
    pub(super) fn judge_content<'a>(
        &self,
        text: Text<'a>,
        kind: MediaKind,
        param: impl FnOnce() -> String,
    ) -> Result<Address<'a>, Failure> {
        match is_base64(text.spelled()) {
            true => Ok(Address::Unchanged(text)),
            false => self.judge(text, kind, param),
        }
    }

    fn judge_remote<'a>(&self, text: Text<'a>) -> MediaVerdict<'a> {
        if *self == Self::Data {
            return Err((
                Fault::RemoteMediaDisabled,
                "it must be a data URL; addresses are not fetched here",
            ));
        }
        let forbidden = |must| Err((Fault::ForbiddenMediaUrl, must));
        if text.spelled().len() > LONGEST {
            return forbidden("it must be a data URL, or an address of at most 8192 bytes");
        }
        let written = text.decoded();
        let url = Url::parse(&written)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some((url, host)) = url.as_ref().and_then(|url| Some((url, url.host()?))) else {
            return forbidden(
                "it must be an http or https URL, or a data URL whose head has at most 256 bytes",
            );
        };
        if !url.username().is_empty() || url.password().is_some() {
            return forbidden("it must not carry a user name or password");
        }
        match self {
            Self::Hosts(hosts) if !hosts.iter().any(|known| *known == host) => {
                forbidden("its host is not among those that media may come from")
            }
            Self::Public if !is_public(&host) => {
                forbidden("its host must be one of the public Internet")
            }
            _ if url.as_str() == text.spelled() => Ok(Address::Unchanged(text)),
            _ => Ok(Address::Rewritten(url.as_str().to_owned(), Text::default())),
        }
    }
}

/// Result of a check: the permitted address, or the fault with the requirement that it violates.
type MediaVerdict<'a> = Result<Address<'a>, (Fault, &'static str)>;

/// Judges a data URL by the head before its data. `None` if the address has another scheme.
fn judge_data_url(text: Text<'_>, kind: MediaKind) -> Option<MediaVerdict<'_>> {
    let spelled = text.spelled();
    let comma = memchr::memchr(b',', spelled.as_bytes().get(..HEAD.min(spelled.len()))?)?;
    let (front, rest) = spelled.split_at(comma);
    let head = Text::json(front).decoded();
    let head = head.trim_start_matches(|c: char| c <= ' ');
    let label = head.get(5..).filter(|_| {
        head.get(..5)
            .is_some_and(|s| s.eq_ignore_ascii_case("data:"))
    })?;
    let mut parts = label.split(';').map(str::trim);
    let essence = parts.next().unwrap_or("").to_ascii_lowercase();
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    let is_type = essence
        .split_once('/')
        .is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    if !is_type || !kind.fits(&essence) {
        return Some(Err((
            Fault::ForbiddenMediaUrl,
            "its data has a type that does not fit this part",
        )));
    }
    let mut ours = format!("data:{essence}");
    for part in parts {
        if !part
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b',' | b'"'))
        {
            return Some(Err((
                Fault::ForbiddenMediaUrl,
                "the part before its data is not readable",
            )));
        }
        let base64 = part.eq_ignore_ascii_case("base64");
        ours.push(';');
        ours.push_str(if base64 { "base64" } else { part });
    }
    if ours == front {
        return Some(Ok(Address::Unchanged(text)));
    }
    Some(Ok(Address::Rewritten(ours, Text::json(rest))))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte)
}

/// Returns true for base64 in either alphabet, with slashes and line ends possibly escaped. Only the first 8 KiB
/// are checked: an address is no longer than that, and has a colon. A path of letters passes.
fn is_base64(spelled: &str) -> bool {
    let letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    let bytes = spelled
        .as_bytes()
        .get(..spelled.len().min(LONGEST))
        .unwrap_or_default();
    let escape = |at: usize| {
        bytes
            .get(at + 1)
            .is_none_or(|next| matches!(next, b'/' | b'n' | b'r'))
    };
    bytes
        .iter()
        .enumerate()
        .all(|(at, byte)| letter(*byte) || *byte == b'\\' && escape(at))
}

/// Suffixes of names that only private networks, clusters and the machine itself resolve (most from RFC 6761, 6762
/// and 8375).
const PRIVATE: &[&str] = &[
    "localhost",
    "localdomain",
    "localdomain4",
    "localdomain6",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "svc",
    "invalid",
    "test",
];

/// Returns true if the host can be public, judging by its name or IP address. Names that resolve to private
/// addresses are a matter for the engine, whose resolver is used.
fn is_public(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let ends = |end: &&str| {
                name.strip_suffix(*end)
                    .is_some_and(|front| front.is_empty() || front.ends_with('.'))
            };
            // An empty label is invalid, and would hide the suffix before it.
            name.contains('.') && !name.split('.').any(str::is_empty) && !PRIVATE.iter().any(ends)
        }
        Host::Ipv4(address) => is_public_v4(address.octets()),
        Host::Ipv6(address) => is_public_v6(address.segments()),
    }
}

/// Returns true if the address is globally reachable by IANA's registry of special addresses, and no metadata
/// service of a cloud.
pub fn is_public_v4(address: [u8; 4]) -> bool {
    !matches!(
        address,
        [0 | 10 | 127 | 224.., ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [168, 63, 129, 16]
    )
}

/// Returns true for global unicast, except wrapped IPv4 addresses (6to4, Teredo), protocol assignments and
/// documentation. Mapped, compatible and translated (NAT64) addresses are not global unicast.
pub fn is_public_v6(address: [u16; 8]) -> bool {
    match address {
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => {
            false
        }
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIA: &str = "forbidden_media_url";
    const REMOTE: &str = "remote_media_disabled";

    /// Returns the address that the engine receives, or the error code.
    fn judged(media: &Media, spelled: &str, kind: MediaKind) -> Result<String, String> {
        let mut out = BytesMut::new();
        match media.judge(Text::json(spelled), kind, || "there".to_owned()) {
            Ok(address) => address.write(&mut out),
            Err(failure) => {
                assert!(
                    failure.message.starts_with("Invalid value for 'there': "),
                    "{}",
                    failure.message
                );
                assert_eq!(failure.param.as_deref(), Some("there"));
                return Err(failure.code.unwrap().into_owned());
            }
        }
        Ok(String::from_utf8(out.to_vec()).unwrap())
    }

    /// Permitted addresses, and their canonical spelling.
    const GOOD: &[(&str, &str)] = &[
        ("https://example.com/a.png", "https://example.com/a.png"),
        (r"https:\/\/example.com\/a.png", "https://example.com/a.png"),
        ("HTTPS://EXAMPLE.com", "https://example.com/"),
        ("  https://example.com/a\\n", "https://example.com/a"),
        (r"ht\ntps://example.com/", "https://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        ("https://example.com./a", "https://example.com./a"),
        ("https:example.com/a", "https://example.com/a"),
        ("https:///example.com/a", "https://example.com/a"),
        (r"https:\\\\example.com\\a", "https://example.com/a"),
        (
            r"http://allowed.example\\@evil.example/",
            "http://allowed.example/@evil.example/",
        ),
        (
            "https://example.com/../../a b?c=d#e",
            "https://example.com/a%20b?c=d#e",
        ),
        (
            "https://example.com/%2e%2e/a%2Fb?sig=a%2Bb%3D",
            "https://example.com/a%2Fb?sig=a%2Bb%3D",
        ),
        (
            "https://example.com/?u=http://127.0.0.1",
            "https://example.com/?u=http://127.0.0.1",
        ),
        ("https://exa%6dple.com/", "https://example.com/"),
        ("https://exämple.com/ü", "https://xn--exmple-cua.com/%C3%BC"),
        ("https://ехample.com/", "https://xn--ample-ywe6i.com/"),
        ("https://example。com/", "https://example.com/"),
        ("https://@example.com/", "https://example.com/"),
        ("https://8.8.8.8/a", "https://8.8.8.8/a"),
        ("https://134744072/", "https://8.8.8.8/"),
        ("https://0x8.0x8.0x8.0x8/", "https://8.8.8.8/"),
        (
            "https://[2606:4700:4700::1111]/a",
            "https://[2606:4700:4700::1111]/a",
        ),
        (
            "https://[2606:4700:4700:0:0:0:0:1111]/a",
            "https://[2606:4700:4700::1111]/a",
        ),
        (
            "https://localhost.example.com/",
            "https://localhost.example.com/",
        ),
        ("https://notlocal.example/", "https://notlocal.example/"),
        (
            "data:image/png;base64,iVBORw0=",
            "data:image/png;base64,iVBORw0=",
        ),
        (
            "DATA:Image/PNG;BASE64,iVBORw0=",
            "data:image/png;base64,iVBORw0=",
        ),
        (
            r"data:image\/svg+xml;charset=utf-8;base64,\/9j",
            "data:image/svg+xml;charset=utf-8;base64,/9j",
        ),
        (" data: image/png ;base64,x", "data:image/png;base64,x"),
    ];

    /// Forbidden addresses.
    const BAD: &[&str] = &[
        "",
        "a.png",
        "/etc/passwd.png",
        "//example.com/a",
        "iVBORw0KGgo=",
        "http://localhost../",
        "http://a..localhost./",
        "https://......../",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "file://localhost/etc/passwd",
        "ftp://example.com/a",
        "gopher://example.com/",
        "jar:http://example.com!/",
        "ws://example.com/",
        "blob:https://example.com/1",
        "javascript:alert(1)",
        "http://",
        "http://:80/",
        "http://exa mple.com/",
        "http://example.com:99999/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://allowed.example@127.0.0.1/",
        "http://:secret@example.com/",
        r"http:\\\\127.0.0.1\\a",
        "http://localhost/",
        "http://LOCALHOST:8000/",
        "http://localhost./",
        "http://a.localhost/",
        "http://metadata/",
        "http://metadata./",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://vllm.default.svc/",
        "http://vllm.default.svc.cluster.local/",
        "http://nas.lan/",
        "http://router.home.arpa/",
        "http://wiki.corp/",
        "http://0/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://100.64.0.1/",
        "http://100.100.100.200/latest/meta-data/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.255.255.255:9090/metrics",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://１２７.０.０.１/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        r"http://\u0031\u0032\u0037.0.0.1/",
        "ht\ttp://127.0.0.1/",
        "http://168.63.129.16/metadata",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://169.254.43518/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.0.0.192/",
        "http://192.0.2.1/",
        "http://192.88.99.1/",
        "http://192.168.1.1/",
        "http://198.18.0.1/",
        "http://198.51.100.1/",
        "http://203.0.113.1/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]:8000/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:8.8.8.8]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::a00:1]/",
        "http://[100::1]/",
        "http://[2001::1]/",
        "http://[2001:0:7f00:1::]/",
        "http://[2001:db8::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[3fff::1]/",
        "http://[5f00::1]/",
        "http://[fc00::1]/",
        "http://[fd00:ec2::254]/latest/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "data:x",
        "data:,x",
        "data:;base64,x",
        "data:text/html;base64,x",
        "data:image;base64,x",
        "data:image/;base64,x",
        r"data:image/png\u002cbase64,x",
        r#"data:image/png;a=\"b\";base64,x"#,
        "data:application/pdf;base64,x",
        r"da\nta:image/png;base64,x",
    ];

    #[test]
    fn fault_c34_addresses_are_judged_by_what_an_engine_reads() {
        assert!(GOOD.len() + BAD.len() >= 60);
        for (spelled, ours) in GOOD {
            assert_eq!(
                judged(&Media::Public, spelled, MediaKind::Image).as_deref(),
                Ok(*ours),
                "{spelled}"
            );
            assert_eq!(
                judged(&Media::Public, ours, MediaKind::Image).as_deref(),
                Ok(*ours),
                "read again: {ours}"
            );
        }
        for spelled in BAD {
            assert_eq!(
                judged(&Media::Public, spelled, MediaKind::Image),
                Err(MEDIA.to_owned()),
                "{spelled}"
            );
            let code = judged(&Media::Data, spelled, MediaKind::Image).unwrap_err();
            assert_eq!(
                code,
                if spelled.starts_with("data:") && spelled.contains(',') {
                    MEDIA
                } else {
                    REMOTE
                }
            );
        }
        let long = format!("https://example.com/{}", "a".repeat(8172));
        assert!(judged(&Media::Public, &long, MediaKind::Image).is_ok());
        assert_eq!(
            judged(&Media::Public, &(long + "a"), MediaKind::Image),
            Err(MEDIA.to_owned())
        );
    }

    #[test]
    fn fault_c34_data_fits_its_part() {
        for (kind, good) in [
            (MediaKind::Image, "image/webp"),
            (MediaKind::Audio, "audio/wav"),
            (MediaKind::Video, "video/jpeg"),
            (MediaKind::File, "application/pdf"),
        ] {
            for label in [
                "image/webp",
                "audio/wav",
                "video/jpeg",
                "application/pdf",
                "text/plain",
            ] {
                let fits = kind == MediaKind::File || label == good;
                let data = judged(&Media::Data, &format!("data:{label};base64,x"), kind);
                assert_eq!(data.is_ok(), fits, "{kind:?} {label}");
            }
        }
        // Data of any length stays unread, and is not copied.
        let data = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
        let address = Media::Public
            .judge(Text::json(&data), MediaKind::Image, String::new)
            .unwrap();
        assert!(
            matches!(address, Address::Unchanged(text) if text.spelled().as_ptr() == data.as_ptr())
        );
        // Neither is an address that is spelled as an engine reads it.
        let address = Media::Public
            .judge(
                Text::json("https://example.com/a"),
                MediaKind::Image,
                String::new,
            )
            .unwrap();
        assert!(matches!(address, Address::Unchanged(_)));
    }

    #[test]
    fn fault_c34_hosts_are_exact() {
        let hosts = [
            "Images.Example.com",
            "10.0.0.5",
            "fd00::5",
            "[fd00::6]",
            "minio",
        ];
        let media = Media::hosts(hosts).unwrap();
        for good in [
            "https://images.example.com/a",
            "http://IMAGES.example.COM:9000/a",
            "http://0x0a000005/a",
            "http://[fd00:0::5]/a",
            "http://[fd00::6]/a",
            "http://minio:9000/a",
            "data:image/png;base64,x",
        ] {
            assert!(judged(&media, good, MediaKind::Image).is_ok(), "{good}");
        }
        for bad in [
            "https://example.com/",
            "https://a.images.example.com/",
            "https://images.example.com./",
            "https://images.example.com.evil.example/",
            "https://evilimages.example.com/",
            r"https://evil.example\\@images.example.com/",
            "https://evil.example#@images.example.com/",
            "https://images.example.com@evil.example/",
            "https://user@images.example.com/",
            "https://10.0.0.6/",
            "https://[::ffff:10.0.0.5]/",
            "ftp://images.example.com/",
        ] {
            assert_eq!(
                judged(&media, bad, MediaKind::Image),
                Err(MEDIA.to_owned()),
                "{bad}"
            );
        }
        for no_host in [
            "",
            "https://example.com",
            "example.com:80",
            "a b",
            "a/b",
            "1.2.3.4.5",
        ] {
            let parsed = Media::hosts([no_host]);
            assert_eq!(parsed, Err(no_host));
        }
    }

    #[test]
    fn fault_c34_content_is_told_from_addresses() {
        let content = |text: &str| {
            Media::Public
                .judge_content(Text::json(text), MediaKind::File, String::new)
                .map(|_| ())
                .is_ok()
        };
        for good in [
            "",
            "AAAA",
            "a-b_c=",
            r"\/9j\/4A+=",
            r"AAAA\nBBBB\n",
            "data:application/pdf;base64,x",
        ] {
            assert!(content(good), "{good}");
        }
        let long = format!("/{}/a.png", "a".repeat(1000));
        for bad in [
            "http://10.0.0.1/",
            "file:/a",
            "/etc/a.png",
            "a b",
            r"http\u003a//10.0.0.1/",
            &long,
        ] {
            assert!(!content(bad), "{bad}");
        }
    }
}
