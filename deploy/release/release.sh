#!/usr/bin/env bash
# Makes the files of a release from the commit that is checked out:
#
#	deploy/release/release.sh VERSION DIRECTORY [OS/ARCH]...
#
# DIRECTORY gets, for each platform, an archive with the adapter and the licences of all that is
# linked into it, and a software bill of materials (CycloneDX); and SHA256SUMS of them all.
# Without platforms it has linux and darwin, each for amd64 and arm64.
#
# The archives depend on VERSION, the commit and the version of Go alone: a second run on another
# machine gives the same bytes. A bill of materials also has the checksum of the program that wrote
# it, and so depends on the platform on which the script runs. The script needs Go, git, GNU tar,
# GNU coreutils and gzip, and the network for modules that are not in the module cache.
set -euo pipefail

# The program that writes bills of materials, which is run from the module cache.
readonly bill_tool=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
# The tag of deploy/Dockerfile.
readonly tags=disable_grpc_modules

# fail says why and ends the script.
fail() {
	printf 'release.sh: %s\n' "$*" >&2
	exit 1
}

[[ $# -ge 2 ]] || fail "usage: release.sh VERSION DIRECTORY [OS/ARCH]..."
version=${1#v}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "$1 is no version such as 0.1.0"
mkdir -p "$2"
out=$(cd "$2" && pwd)
[[ -z $(ls -A "$out") ]] || fail "$out is not empty"
shift 2
platforms=("$@")
[[ ${#platforms[@]} -gt 0 ]] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
commit=$(git rev-parse HEAD)
seconds=$(git log -1 --format=%ct)
date=$(date -u -d "@$seconds" +%Y%m%d-%H:%M:%S)

# What is built is the commit, not what has changed since.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
git archive "$commit" | tar -x -C "$work/source"
cd "$work/source"

# Settings of a machine that would change the program.
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off TZ=UTC LC_ALL=C

# build writes the program of GOOS and GOARCH. The source has no version control, so the version and the revision
# are set by -ldflags.
build() {
	local v=github.com/prometheus/common/version
	go build -trimpath -buildvcs=false -tags="$tags" -o "$1" \
		-ldflags="-s -w -X $v.Version=$version -X $v.Revision=$commit -X $v.Branch=HEAD -X $v.BuildUser=release -X $v.BuildDate=$date" ./cmd/adapter
}

# licenses copies the licences and notices of Go, of all modules of which a package is linked in, of directories of
# such packages and those above them, and of the editor of the page. A module without a licence ends the script.
licenses() {
	local to=$1 cache path file
	local named=(-iname 'LICENSE*' -o -iname 'LICENCE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' -o -iname 'PATENTS*')
	cache=$(go env GOMODCACHE)
	mkdir -p "$to/go" "$to/page"
	cp "$(go env GOROOT)"/{LICENSE,PATENTS} "$to/go/"
	cp remote/ui/static/vendor/codemirror/LICENSES "$to/page/"
	go list -deps -tags="$tags" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}} {{$.Dir}}{{end}}{{end}}' ./cmd/adapter | grep . >"$work/packages"
	# Each directory of a package, and those above it up to that of its module.
	awk '{ for (dir = $3; ; sub("/[^/]*$", "", dir)) { print dir; if (dir == $2) next } }' "$work/packages" | sort -u |
		xargs -I{} find {} -maxdepth 1 -type f '(' "${named[@]}" ')' ! -name '*.go' >"$work/found"
	while read -r file; do
		# github.com/!name@v1.2.3/dir in the cache is github.com/Name/dir.
		path=$(sed -E 's/@[^/]*//; s/!(.)/\U\1/g' <<<"${file#"$cache/"}")
		install -D -m 644 "$file" "$to/$path"
	done <"$work/found"
	while read -r path; do
		[[ -d $to/$path && -n $(find "$to/$path" -maxdepth 1 -type f) ]] || fail "$path has no licence"
	done < <(cut -d' ' -f1 "$work/packages" | sort -u)
	chmod -R u=rwX,go=rX "$to"
}

# pack writes an archive that depends on nothing but names, modes and bytes.
pack() {
	tar -C "$work" --sort=name --format=ustar --mtime="@$seconds" --owner=0 --group=0 --numeric-owner -cf - "$1" | gzip -9 -n >"$out/$1.tar.gz"
}

for platform in "${platforms[@]}"; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	name=promtable-$version.$GOOS-$GOARCH
	mkdir "$work/$name"
	build "$work/$name/adapter"
	licenses "$work/$name/licenses"
	cp LICENSE "$work/$name/"
	cp deploy/release/README.txt docs/changelog.md "$work/$name/"
	chmod 755 "$work/$name" "$work/$name/adapter"
	chmod 644 "$work/$name/LICENSE" "$work/$name/README.txt" "$work/$name/changelog.md"
	pack "$name"
	# It reads what the go command has noted in the program. It runs here, whatever the platform.
	GOOS='' GOARCH='' GOFLAGS='' go run -trimpath "$bill_tool" bin -json -std -noserial -notimestamp -version "v$version" \
		-output "$out/$name.cdx.json" "$work/$name/adapter"
	rm -r "${work:?}/$name"
done
cd "$out"
sha256sum -- *.tar.gz *.cdx.json >SHA256SUMS
printf 'promtable %s of commit %s, by %s:\n' "$version" "$commit" "$(GOOS='' GOARCH='' go env GOVERSION)"
cat SHA256SUMS
