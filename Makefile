# holt: make build | run | test | race | check | vuln | e2e | bench | soak | kvm-lab | deb | release
GO       ?= go
BIN      := bin
DATA     ?= $(CURDIR)/data
CACHE    := $(CURDIR)/.cache
GUEST    := cmd/holt/guest/holt-guest
PACKAGES := ./...
LDFLAGS  := -s -w

export HOLT_TEST_CACHE := $(CACHE)
export HOLT_IMAGE_DIR  ?= $(CACHE)/images
# The Go that go.mod names, whatever is installed; GOTOOLCHAIN=local has that.
export GOTOOLCHAIN     ?= auto
# Programs, tests and checks are compiled in one way, so that nothing is compiled twice.
export CGO_ENABLED     := 0
export GOFLAGS         ?= -trimpath
# By default a program under the race detector sleeps for a second before it exits.
export GORACE          ?= atexit_sleep_ms=10

.PHONY: build guest run deps test race tools images check vuln e2e bench soak kvm-lab deb release clean

guest:
	$(GO) build -ldflags '$(LDFLAGS)' -o $(GUEST) ./cmd/holt-guest

build: guest
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/holt ./cmd/holt

# dist/holt_VERSION_ARCH.deb: the program, manual pages, completions and units.
deb:
	GO='$(GO)' ./scripts/deb dist

# dist/: programs and packages for amd64 and arm64, install.sh and checksums.
release:
	GO='$(GO)' ./scripts/release dist

# Installs what is missing, builds, starts, and shows a computer at work.
run: build
	HOLT_DATA_DIR=$(DATA) ./scripts/first-session

# Everything, at the small counts, in 20 minutes on two processors without KVM; needs root for real mounts and
# machines. HOLT_TEST_LOG=1 has all that daemons log in the output of tests that fail, not only warnings.
test: deps build
	GO='$(GO)' ./scripts/test

# All packages but e2e once more, under the race detector.
race: deps build
	GO='$(GO)' ./scripts/test race

# What holt needs on this host.
tools: build
	$(BIN)/holt doctor --install --yes --data-dir $(CACHE)

# The images that tests make computers of.
images: build
	$(BIN)/holt image build base
	$(BIN)/holt image build coding-agent

# Programs that only the tests use.
deps:
	./scripts/test-deps

check: guest
	@test -z "$$(gofmt -l *.go */ | tee /dev/stderr)" || (echo 'gofmt: run gofmt -w on the files above' && false)
	$(GO) vet -composites=false $(PACKAGES)
	$(GO) tool staticcheck $(PACKAGES)

# Known vulnerabilities in Go and in modules that holt calls; exit status 3: there are.
vuln: guest
	GO='$(GO)' ./scripts/vuln

e2e: deps build
	$(GO) test -count=1 -timeout 30m -v ./e2e/...

bench: build
	./scripts/test-deps bench
	$(GO) run ./bench -out docs/notes/benchmarks.md

# Known vulnerabilities, all tests at the full counts, and every decoder fuzzed (FUZZTIME each); ends with counts and
# seeds. The models of workspace run for a minute each, or for HOLT_SOAK_TIME=2h.
soak: deps tools images vuln
	./scripts/soak

# The Debian package on KVM, in an emulated machine that has it: installed, used, upgraded, removed.
kvm-lab: tools images
	GO='$(GO)' ./scripts/kvm-lab

clean:
	rm -rf $(BIN) $(GUEST)
