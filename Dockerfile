# syntax=docker/dockerfile:1

# One static binary on an empty image.
#
# Static against glibc and not musl: its resolver behaves as on the host (search domains, TCP after a truncated answer),
# and both file and DNS lookups are part of libc.a, so nothing is loaded at run time.

FROM rust:1.95-slim AS build
WORKDIR /src
# The allocator, jemalloc, is built by a makefile.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
# A static binary cannot look up at run time whether libc has getrandom(2), and would open /dev/urandom instead: it is told.
ENV CARGO_TERM_COLOR=never CARGO_PROFILE_RELEASE_STRIP=symbols RUSTFLAGS="-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\""

# With --target given, RUSTFLAGS do not reach build scripts and procedural macros, which must stay dynamic.
RUN echo "$(uname -m)-unknown-linux-gnu" > /target-triple

# --build-arg PGO=on: the binary is built with a profile of itself (benches/pgo.sh). That takes three times as long, and has
# gained nothing that could be measured (docs/performance.md).
ARG PGO=off

# The dependencies alone, over an empty crate: this layer is built anew only when Cargo.toml or Cargo.lock change. A build with
# a profile builds them otherwise, so that they would be of no use to it.
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
COPY src/build.rs src/build.rs
COPY src/core/Cargo.toml src/core/Cargo.toml
RUN if [ "$PGO" = on ]; then exit; fi; mkdir -p benches/proxy benches/request benches/soak \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs src/core/lib.rs benches/rewrite.rs benches/store.rs benches/proxy/main.rs benches/request/main.rs benches/soak/main.rs \
    && cargo build --release --locked --target "$(cat /target-triple)" \
    && rm -r src benches

# There is no repository in here: --build-arg COMMIT=$(git rev-parse --short=12 HEAD) --build-arg DATE=$(git show -s --format=%cs)
ARG COMMIT DATE
ENV SAMEWIRE_COMMIT=$COMMIT SAMEWIRE_DATE=$DATE
COPY . .
# The touch makes the sources newer than the empty crate, whatever their dates were outside.
RUN find src -name '*.rs' -exec touch {} + \
    && if [ "$PGO" = on ]; then benches/pgo.sh --target "$(cat /target-triple)"; \
       else cargo build --release --locked --bin samewire --target "$(cat /target-triple)"; fi \
    && cp "target/$(cat /target-triple)/release/samewire" /samewire

FROM scratch
LABEL org.opencontainers.image.title="samewire" \
      org.opencontainers.image.description="One canonical OpenAI wire format in front of vLLM, SGLang and other engines" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build --chmod=0555 /samewire /samewire
COPY --from=build --chmod=0444 /src/LICENSE /LICENSE
# The authorities that the build image trusts, where samewire looks for those of a system: for engines at https:// without a
# ca_file, and for a PostgreSQL that is verified without an sslrootcert. A file and not a crate with roots: whoever has
# authorities of his own mounts another file over it, and a newer base image brings newer ones without a line of code changed.
COPY --from=build --chmod=0444 /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt

# A number, because the image has no /etc/passwd to name it in.
USER 65532:65532
EXPOSE 8080 9090

# The engine's address comes from outside: SAMEWIRE_UPSTREAM=http://host:port. So does who may ask: a file with keys, or
# SAMEWIRE_INSECURE_NO_AUTH=true where the network alone decides that.
# Healthy means that an engine answers. Kubernetes ignores this, and asks /livez and /readyz on port 9090.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30m --start-interval=2s CMD ["/samewire", "ready"]
ENTRYPOINT ["/samewire"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--admin-listen", "0.0.0.0:9090"]
