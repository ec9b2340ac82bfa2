# Everything a newcomer needs: `make demo` shows the main job, `make test` passes the tests.
# Only Go, git and make are needed; for the tests also what the README names (internal/toolchain finds or installs it).

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2
# A number of inputs: at the end of a time the fuzzer now and then reports its own deadline as a failure (golang.org/issue/75804).
FUZZTIME ?= 3000x

export CGO_ENABLED ?= 0
# For tests as well as for what is released, so that nothing is compiled twice. The compiler and the linker collect less
# garbage, which saves a seventh of their time.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath '-toolexec=env GOGC=400')

.DEFAULT_GOAL := help
.PHONY: help build install demo dashboard screenshots assets first-hour test race fuzz lint vet bench hostile hostile-short clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/forebay
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/forebay ./cmd/forebay

install: ## install forebay into Go's bin folder
	$(GO) install -ldflags '$(LDFLAGS)' ./cmd/forebay

demo: build ## run real documents through a server whose model misbehaves; ARGS=-keep leaves a dashboard open
	$(GO) run ./examples/demo -forebay bin/forebay $(ARGS)

dashboard: build ## open a dashboard with a real backlog: work for simulated models, until Ctrl-C
	$(GO) run ./examples/demo -forebay bin/forebay -keep

screenshots: ## take the pictures of docs/dashboard.md again, of the work of make dashboard; two minutes
	@$(GO) run ./internal/toolchain/ensure
	$(GO) vet -tags screenshots ./examples/demo
	$(GO) test -tags screenshots -count=1 -vet off -timeout 10m -run TestScreenshots ./examples/demo

assets: ## fetch the dashboard's assets that are not ours, by npm, and compare them with vendor.json
	$(GO) run ./internal/dashboard/fetch

# Those that take longest come first, so that the others run beside them. Three packages run at a time, for
# tests mostly wait. Their files are in memory, if they can be (.ci/tmp); Go's own are not.
test: ## run all tests, the crash tests included
	@$(GO) run ./internal/toolchain/ensure
	cd bench && $(GO) vet ./...
	GOGC=400 GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=$$(.ci/tmp) $(GO) test -vet off -timeout 15m -p 3 -parallel 4 \
		./internal/jobs ./internal/bus ./server/interop/servicebus ./server ./docs ./internal/quota ./server/dashboard ./server/dashboard/screens ./server/crash/kills ./server/crash ./server/interop ./internal/orchestrate ./internal/db ./server/openai ./server/admission ./server/dashboard/signin ./...

# modernc.org/sqlite is transpiled C: instrumenting it is slow and finds no races of ours. With
# -short, tests that the detector learns nothing from skip themselves (internal/raced). .ci/raced
# says which packages these are, and why.
race: ## run the tests of what is concurrent under the race detector (needs a C compiler)
	GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=$$(.ci/tmp) CGO_ENABLED=1 $(GO) test -race -gcflags='modernc.org/...=-race=false' -vet off -short -timeout 15m -p 4 -parallel 4 $$(GO='$(GO)' .ci/raced)

fuzz: ## fuzz every parser of outside input with $(FUZZTIME) inputs each, or for a time such as 30s
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' sh .ci/fuzz

# The linter's cache is the checkout's own: what is found compiled alike is known by its text alone, and another folder's findings would
# name another folder's files. It collects garbage when it holds 4 GiB, which saves a third of its time.
lint: ## run the linters of .golangci.yml
	GOGC=off GOMEMLIMIT=4GiB GOLANGCI_LINT_CACHE='$(CURDIR)/bin/lint-cache' $(GO) run $(GOLANGCI) run ./...

first-hour: build ## time the path of a new user, from the first job to an orchestration in Python
	@examples/firsthour/path.sh

hostile: ## attack a server in every known way and measure what others notice; about half an hour, on a quiet machine
	$(GO) test -tags hostile -count=1 -vet off -timeout 90m -v ./hostile

hostile-short: ## the same in a small form; about a minute and a half
	$(GO) vet -tags hostile ./hostile
	$(GO) test -tags hostile -count=1 -vet off -timeout 10m -short -v ./hostile

bench: ## measure beside River, bare HTTP, other clients and the disk; about an hour and a half, on a quiet machine
	cd bench && $(GO) run .

clean: ## remove what was built
	rm -rf bin bench/results
