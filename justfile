# The commands of this repository. `just` lists them; continuous integration runs the same ones.

data := env("STREAMKIT_TEST_DATA", "../shared/data")

# List the recipes.
default:
    @just --list --unsorted

# Install streamkit with what tests, linters and docs need, and the commit hooks. Run it in a virtual environment.
setup extras="cpu,dev":
    python -m pip install -e '.[{{ extras }}]'
    python -m pip install --no-deps 'trackeval>=1.3,<2'
    pre-commit install

# Run the tests: all of them, or those that pytest is given.
test *args:
    python -m pytest {{ args }}

# Run the property tests with new examples.
search *args:
    python -m pytest --hypothesis-profile search {{ args }}

# Check style and types.
lint:
    ruff check .
    ruff format --check .
    mypy

# Mend style.
fix:
    ruff check --fix .
    ruff format .

# Build the documentation site into site/; a broken link is an error.
docs:
    mkdocs build --strict

# Serve the documentation on http://127.0.0.1:8000 and rebuild it on every change.
docs-serve:
    mkdocs serve

# Measure speed: `just bench` on the CPU; `just bench gpu` makes the figures, tables and plots of docs/performance.md.
bench kind="cpu" *args:
    python {{ if kind == "gpu" { "benchmarks/performance.py" } else { "run.py bench " + kind } }} {{ if path_exists(data) == "true" { "--data " + data } else { "" } }} {{ args }}
    {{ if kind == "gpu" { "python benchmarks/performance_page.py" } else { "" } }}

# Write constraints.txt, the versions that continuous integration tests; `just lock --upgrade` takes the newest. Needs uv.
lock *args:
    uv pip compile pyproject.toml --universal --all-extras --python-version 3.11 --no-annotate --quiet --custom-compile-command "just lock" --output-file constraints.txt {{ args }}
    for device in cpu gpu; do uv pip compile pyproject.toml --universal --python-version 3.11 --extra $device --extra serve --extra track --extra rules --extra mqtt --constraints constraints.txt --no-annotate --no-emit-index-url --generate-hashes --quiet --custom-compile-command "just lock" --output-file examples/deploy/requirements-$device.txt; done

# Build the source distribution and the wheel, with the documentation, into dist/.
wheel:
    just docs
    rm -rf dist
    python -m build

# Install the wheel of dist/ into an empty environment and run it there.
try-wheel:
    STREAMKIT_WHEEL=dist python -m pytest tests/repository/test_wheel.py

# Check that a tag names the version of the package, as v0.1.0 does, and that the repository's address is set.
check-tag tag:
    @python docs/project_urls.py {{ quote(tag) }}

# Run the soaks, which take about three hours, and write a dated report into docs/soaks/.
soak *args:
    python tests/soak/report.py {{ args }}

# Draw random mutants of a package and run its tests against each: `just mutants streamkit/rules --count 40`.
mutants package *args:
    python tests/mutants/run.py random {{ package }} {{ args }}

# Apply every known mutant and check that its tests fail.
known-mutants *args:
    python tests/mutants/run.py known {{ args }}

# Build the image streamkit:cpu or streamkit:gpu: `just image gpu --build-arg EXTRAS=serve,track`.
image target="cpu" *args:
    docker build -f examples/deploy/Dockerfile --target {{ target }} -t streamkit:{{ target }} \
        --build-arg VERSION=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' streamkit/core/version.py) \
        --build-arg REVISION=$(git rev-parse HEAD) {{ args }} .

# Resolve the packages of an image with pip, without installing any.
image-packages target="gpu":
    python -m pip install --dry-run --ignore-installed --constraint constraints.txt \
        ".[{{ target }},$(sed -n 's/^ARG EXTRAS=//p' examples/deploy/Dockerfile)]"

# Run what must pass before a change is merged.
gate:
    .ci/run
