#!/usr/bin/env bash
# The path of a new user, timed: a first job, a first endpoint that speaks a provider's protocol, a first dead letter
# mended, a first orchestration in Python. `make first-hour` runs it in a clone. It uses the ports 8080, 8090 and 4001.
set -euo pipefail
repository=$PWD
PATH=$repository/bin:$PATH
unset FOREBAY_URL FOREBAY_API_KEY OPENAI_API_KEY OPENAI_BASE_URL
here=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$here"' EXIT
cd "$here"
began=$(date +%s%N)
lap() {
	local now; now=$(date +%s%N)
	printf '%-40s %6d ms\n' "$1" $(((now - began) / 1000000))
	began=$(date +%s%N)
}
answers() {
	local tries=0
	until curl -sf "$1" >/dev/null; do
		[ $((tries += 1)) -lt 500 ] || { echo "nothing answers at $1:" >&2; cat serve.log >&2; exit 1; }
		sleep 0.02
	done
}

echo "The new pumps are quiet and the crew loves them." > report.txt
forebay serve 2>serve.log & server=$!
answers localhost:8080/readyz
forebay submit summarize --file report.txt --wait >/dev/null
lap "first job"
kill $server; wait $server || true

forebay sim >sim.log &
printf 'orchestrations:\n  grpc: {address: "127.0.0.1:4001"}\n' > forebay.yaml
answers localhost:8090/healthz
OPENAI_API_KEY=any OPENAI_BASE_URL=http://127.0.0.1:8090/v1 forebay serve --config forebay.yaml 2>serve.log &
answers localhost:8080/readyz
forebay submit summarize --file report.txt --wait >/dev/null
lap "first job at an endpoint over HTTP"

curl -s -X PUT http://127.0.0.1:8090/_sim/faults -d '[{"errors": {"500": 1}}]' >/dev/null
forebay submit summarize --file report.txt --max-attempts 1 -o json > job
job=$(grep -o -m 1 'job_[a-z0-9]*' job | sed -n 1p)
until forebay dlq list -o jsonl > dead && grep -q "$job" dead; do sleep 0.05; done
curl -s -X PUT http://127.0.0.1:8090/_sim/faults -d none >/dev/null
echo "The pumps are quiet." > mended.txt
forebay dlq redrive "$job" --set-input-file mended.txt >/dev/null
forebay jobs get "$job" --wait > job
grep -q succeeded job
lap "first dead letter mended"

python3 -m venv venv
venv/bin/pip install -q -r "$repository/examples/durabletask/requirements.txt" 2>pip.log
lap "Python's SDK installed"
venv/bin/python "$repository/examples/durabletask/program.py" localhost:4001 >said 2>worker.log
[ "$(grep -c COMPLETED said)" = 6 ]
lap "first orchestrations in Python"
