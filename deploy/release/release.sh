#!/usr/bin/env bash
# Makes the files of a release, from what is committed:
#
#	deploy/release/release.sh VERSION DIR [GOOS/GOARCH ...]
#
#	promtable-VERSION-GOOS-GOARCH.tar.gz   adapter, LICENSE, README.md, LICENSES.txt
#	promtable-VERSION-GOOS-GOARCH.sbom.json   what is in adapter, as CycloneDX has it
#	SHA256SUMS
#
# LICENSES.txt has the licence of each module that is linked in; one without a licence ends the script.
# Two runs of one commit and one Go make the same files, byte for byte, wherever the clone is:
# go test ./e2e/project -run TestRelease -release compares. It needs Go, git, GNU tar and gzip.
set -euo pipefail

fail() {
	printf 'FAIL: %s\n' "$*" >&2
	exit 1
}

[[ $# -ge 2 ]] || fail "usage: release.sh VERSION DIR [GOOS/GOARCH ...]"
version=$1
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ ]] || fail "$version is no version such as v0.1.0"
mkdir -p "$2"
out=$(cd "$2" && pwd)
targets=("${@:3}")
[[ ${#targets[@]} -gt 0 ]] || targets=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ -z $(git status --porcelain) ]] || fail "the clone has changes that are not committed"
# What a release says is in the changelog, or there is none.
grep -q "^## ${version#v}\b" docs/changelog.md || fail "docs/changelog.md has no section ${version#v}"

revision=$(git rev-parse HEAD)
seconds=$(git show -s --format=%ct HEAD)
built=$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)
about=github.com/prometheus/common/version
ldflags="-s -w -buildid= -X $about.Version=${version#v} -X $about.Revision=$revision -X $about.BuildDate=$built"
# As deploy/Dockerfile has it.
flags=(-tags=disable_grpc_modules -trimpath -buildvcs=false "-ldflags=$ldflags")
export CGO_ENABLED=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# licences prints the licences of all modules that are linked in.
licences() {
	local path dir file found
	go list -deps "${flags[@]}" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/adapter | LC_ALL=C sort -u | while read -r path dir; do
		found=
		for file in "$dir"/{LICENSE,LICENCE,COPYING,NOTICE,License,license}{,.txt,.md,.MIT,-MIT,.code}; do
			[[ -f $file ]] || continue
			found=1
			printf '%s: %s\n\n' "$path" "$(basename "$file")"
			cat "$file"
			printf '\n\n'
		done
		[[ -n $found ]] || fail "module $path has no licence"
	done
	printf 'The Go standard library: LICENSE\n\n'
	cat "$(go env GOROOT)/LICENSE"
}

for target in "${targets[@]}"; do
	export GOOS=${target%/*} GOARCH=${target#*/}
	name=promtable-${version#v}-$GOOS-$GOARCH
	dir=$work/$name
	mkdir "$dir"
	go build "${flags[@]}" -o "$dir/adapter" ./cmd/adapter
	cp LICENSE README.md "$dir/"
	licences >"$dir/LICENSES.txt"
	chmod 755 "$dir" "$dir/adapter"
	chmod 644 "$dir"/{LICENSE,README.md,LICENSES.txt}
	tar --sort=name --mtime="@$seconds" --owner=0 --group=0 --numeric-owner -C "$work" -c "$name" | gzip -n9 >"$out/$name.tar.gz"
	GOOS='' GOARCH='' go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0 bin -json -noserial -version "$version" -output "$work/sbom.json" "$dir/adapter" 2>"$work/sbom.log" || fail "$(cat "$work/sbom.log")"
	# Its time is that of the run.
	sed -E 's/("timestamp": ")[^"]*"/\1'"$built"'"/' "$work/sbom.json" >"$out/$name.sbom.json"
done
(cd "$out" && LC_ALL=C sha256sum promtable-"${version#v}"-* >SHA256SUMS)
cat "$out/SHA256SUMS"
