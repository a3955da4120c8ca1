"""What is wrong in a YAML is told with its place, all at once, and without secrets."""

import pytest
from support.configs import SMALL, _in_the_checkout, config, problems, with_stages  # noqa: F401  a fixture

from streamkit.config.entries import EXAMPLES
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # keys, stages and options that there are not
        ("devise: cpu\n" + SMALL, "1:1: unknown key 'devise'; did you mean 'device'?"),
        (
            "zebra: 1\n" + SMALL,
            "1:1: unknown key 'zebra'; known: device, batch, watchdog, state, plugins, sources, stages, alarms, tests",
        ),
        ("batch: {max_latency: soon}\n" + SMALL, "1:22: batch.max_latency must be"),
        ("watchdog: never\n" + SMALL, "1:11: watchdog must be"),
        ("state: [a]\n" + SMALL, "1:8: state must name a file, such as state.db, got ['a']"),
        ("run: {on_error: stop}\n" + SMALL, "1:1: unknown key 'run'; it stands under a stage"),
        (
            with_stages("zebra: {}"),
            "3:3: unknown stage 'zebra'; streamkit list shows what there is, plugins: adds to it",
        ),
        (with_stages("detct: {model: demo}"), "3:3: unknown stage 'detct'; did you mean 'detect'?"),
        (with_stages("x: {stage: detct, model: demo}"), "3:14: unknown stage 'detct'; did you mean 'detect'?"),
        (
            with_stages("detect: {model: demo, min_scor: 1}"),
            "3:25: detect has no option 'min_scor'; did you mean 'min_score'?",
        ),
        (with_stages("draw: {fil: 0.5}"), "3:10: draw has no option 'fil'; did you mean 'fill'?"),
        (
            with_stages("draw: {cells: 8}"),
            "3:10: draw has no option 'cells'; it stands within blur or pixelate, as in blur: {cells: ...}",
        ),
        # former names
        (
            with_stages("detect: {model: demo}", "kind: {stage: classify, model: color, of: detect, better: 2}"),
            "classify has no option 'better'; it is now 'requery_ratio'",
        ),
        (
            with_stages("detect: {model: demo}", "kind: {stage: classify, model: color, of: detect, forget: 2s}"),
            "classify has no option 'forget'; it is now 'track_ttl'",
        ),
        (
            with_stages("detect: {model: demo}", "heatmap: {path: '{source}.png', forget: 1h}"),
            "heatmap has no option 'forget'; it is now 'decay'",
        ),
        (
            with_stages("mqtt: {url: 'mqtt://127.0.0.1', drain: 1s}"),
            "mqtt has no option 'drain'; it is now 'drain_timeout'",
        ),
        (
            with_stages("record: {}", "snapshot: {when: record.manual, keep: {age: 7d}}"),
            "4:35: snapshot has no option 'keep'; it is now 'retention'",
        ),
        (with_stages("draw: {run: {que: 2}}"), "3:16: draw.run has no option 'que'; did you mean 'queue'?"),
        (
            "sources: {a: {uri: x.mp4, nmae: Gate}}\nstages: {draw: {}}",
            "1:27: source has no option 'nmae'; did you mean 'name'?",
        ),
        ("batch: {siz: 2}\n" + SMALL, "1:9: batch has no option 'siz'; did you mean 'size'?"),
        (
            "sources: {a: {uri: x.mp4, lop: true}}\nstages: {draw: {}}",
            "1:27: source has no option 'lop'; did you mean 'loop'?",
        ),
        # a needed one, misspelt: told once
        (with_stages("detect: {modl: demo}"), "3:12: detect has no option 'modl'; did you mean 'model'?"),
        (with_stages("jsonl: {pat: a.jsonl}"), "3:11: jsonl has no option 'pat'; did you mean 'path'?"),
        ("source: {a: x.mp4}\nstages: {draw: {}}", "1:1: unknown key 'source'; did you mean 'sources'?"),
        ("sources: {a: x.mp4}\nstage: {draw: {}}", "2:1: unknown key 'stage'; did you mean 'stages'?"),
        # twice
        (with_stages("draw: {}", "draw: {}"), "4:3: the key 'draw' is here twice, first in line 3"),
        # wrong types and units
        (
            with_stages("detect: {model: demo, min_score: 2}"),
            "3:36: detect.min_score must be 0 to 1 or a mapping, got 2",
        ),
        (with_stages("detect: {model: demo, top_k: many}"), "3:32: detect.top_k must be a whole number, got 'many'"),
        (with_stages("detect: {model: demo, threads: -3}"), "3:34: detect.threads must be at least 1, got -3"),
        (with_stages("detect: {model: demo, top_k: 0}"), "3:32: detect.top_k must be at least 1, got 0"),
        (with_stages("detect: {model: demo, labels: car}"), "3:33: detect.labels must be a list, got 'car'"),
        (with_stages("draw: {labels: yes}"), "3:18: draw.labels must be true or false, got 'yes'"),
        (
            with_stages("draw: {color: classs}"),
            "3:17: draw.color must be class, track or identity, got 'classs'; did you mean 'class'?",
        ),
        (
            with_stages("video: {path: a.mp4, codec: h265}"),
            "3:31: video.codec must be h264 or hevc, got 'h265'; did you mean 'hevc'?",
        ),
        (with_stages("video: {path: a.mp4, codec: x265}"), "got 'x265'; did you mean 'hevc'?"),
        (with_stages("video: {path: a.mp4, codec: X264}"), "got 'X264'; did you mean 'h264'?"),
        (with_stages("video: {path: a.mp4, codec: avc}"), "got 'avc'; did you mean 'h264'?"),
        (with_stages("video: {path: a.mp4, codec: hev}"), "got 'hev'; did you mean 'hevc'?"),
        (with_stages("video: {path: 5}"), "3:17: video.path must be text, got 5"),
        (
            with_stages("video: {path: out/a.mp4, segment: soon}"),
            "3:37: video.segment must be a duration such as 10s, 200ms or 5min (a bare number is seconds), got 'soon'",
        ),
        (
            "sources: {a: {uri: x.mp4, start: 1:30}}\nstages: {draw: {}}",
            "1:34: a.start must be a duration such as 10s, 200ms or 5min (a bare number is seconds), got '1:30'",
        ),
        (
            with_stages("jsonl: {path: a.jsonl, rotate: {size: 100mb}}"),
            "3:41: jsonl.rotate.size must be a size such as 100MB (a bare number is bytes), got '100mb'",
        ),
        (with_stages("jsonl: {path: a.jsonl, rotate: {siz: 100MB}}"), "jsonl.rotate has no option 'siz'"),
        (with_stages("draw: 5"), "3:9: the options of draw must be a mapping, got 5"),
        (with_stages("draw: {run: 5}"), "3:15: draw.run must be a mapping, such as {on_error: stop}"),
        (with_stages("draw: {run: {queue: 0}}"), "3:23: draw.run.queue must be at least 1, got 0"),
        (with_stages("draw: {run: {queue: true}}"), "3:23: draw.run.queue must be a whole number, got True"),
        (with_stages("draw: {run: {on_error: ignore}}"), "3:26: draw.run.on_error must be skip or stop, got 'ignore'"),
        ("device: gpu\n" + SMALL, "1:9: device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ("device: [1]\n" + SMALL, "1:9: device must be auto, cpu, cuda or cuda:N, got [1]"),
        ("device: [cuda:0, gpu]\n" + SMALL, "1:9: device must be auto, cpu, cuda or cuda:N, got ['cuda:0', 'gpu']"),
        ("device: [cuda:0, auto]\n" + SMALL, "1:9: device must name each device of a list, as in [cuda:0"),
        (
            "device: [cuda:0, cuda, cuda:0]\n" + SMALL,
            "1:9: device must list each device once: the number of processes on a GPU is chosen automatically, and "
            "device: {use: cuda:0, processes: 3} sets it, got ['cuda:0', 'cuda', 'cuda:0']",
        ),
        (
            "device: {use: [cuda:0, cuda:1, cuda:1]}\n" + SMALL,
            "1:15: device.use must list each device once: the number of processes on a GPU is chosen automatically, "
            "and device: {use: [cuda:0, cuda:1], processes: 2} sets it",
        ),
        ("device: {processes: 0}\n" + SMALL, "1:21: device.processes must be auto or at least 1, got 0"),
        ("device: {use: gpu}\n" + SMALL, "1:15: device.use must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ("device: {process: 3}\n" + SMALL, "1:10: device has no option 'process'; did you mean 'processes'?"),
        ("device: []\n" + SMALL, "1:9: device must name a device; leave it out for auto, got []"),
        ("batch: {size: true}\n" + SMALL, "1:15: batch.size must be a whole number, got True"),
        ("batch: true\n" + SMALL, "1:8: batch.size must be a whole number, got True"),
        ("batch: 0\n" + SMALL, "1:8: batch.size must be 1 to 1024, got 0"),
        ("batch: 1025\n" + SMALL, "1:8: batch.size must be 1 to 1024, got 1025"),
        ("batch: {size: 2.0}\n" + SMALL, "1:15: batch.size must be a whole number, got 2.0"),
        ("batch: many\n" + SMALL, "1:8: batch.size must be a whole number, got 'many'"),
        ("batch: {max_wait: soon}\n" + SMALL, "1:19: batch.max_wait must be a duration such as"),
        # what is needed
        (with_stages("detect: {}"), "3:11: detect.model is required: the model card"),
        (with_stages("jsonl: {}"), "3:10: jsonl.path is required: the file, such as"),
        ("stages: {draw: {}}", "1:1: a pipeline needs sources: an id and a URI for each"),
        ("sources: {a: x.mp4}", "1:1: a pipeline needs stages, such as detect and jsonl"),
        ("sources: {a: }\nstages: {draw: {}}", "1:11: source a needs a URI or a file"),
        ("sources: {a: {loop: true}}\nstages: {draw: {}}", "1:14: source a needs a URI as text"),
        ("sources: {a: {url: x.mp4}}\nstages: {draw: {}}", "as text, {uri: ...}; write uri, not url"),
        ("sources:\n  a: ${NO_SUCH}\nstages: {draw: {}}", "2:6: the environment variable NO_SUCH is not set"),
        (
            "sources: {a: {uri: x.mp4, start: 10, end: 5}}\nstages: {draw: {}}",
            "1:14: a: end must be after start, got start 10 s and end 5 s",
        ),
        (
            "sources: {a: 'test://?size=640'}\nstages: {draw: {}}",
            "1:14: a: test://?size=640: a test pattern has no parameter 'size', only width, height, fps, frames",
        ),
        (
            "sources: [x.mp4]\nstages: {draw: {}}",
            "1:10: sources must be a mapping, each source an id and its URI, got a list; leave out the dashes:\n"
            "    sources:\n      street: samples/street.mp4\n",
        ),
        (
            "sources: {a: x.mp4}\nstages: [draw]",
            "2:9: stages must be a mapping, each stage an id and its options, got a list; leave out the dashes:\n"
            "    stages:\n      detect:\n        model: demo\n",
        ),
        (
            "sources: {a: x.mp4}\nstages: draw",
            "2:9: stages must be a mapping, each stage an id and its options, got 'd",
        ),
        # webcams
        (
            "sources: {a: 0}\nstages: {draw: {}}",
            "1:14: source a needs a URI as text, {uri: ...}, got 0; webcam 0 is the device /dev/video0",
        ),
        ("sources: {a: {uri: 12}}\nstages: {draw: {}}", "got 12; webcam 12 is the device /dev/video12"),
        ("[1, 2]", "1:1: a pipeline is a mapping with the keys device"),
        # ids
        (
            with_stages("decode: {stage: draw}"),
            "3:3: a stage cannot have the id 'decode': decode is the id of the decoded frames",
        ),
        (with_stages("decode: {}"), "3:3: a stage cannot have the id 'decode'"),
        (with_stages("a.b: {stage: draw}"), "3:3: a stage cannot have the id 'a.b': letters, digits, _ and - only"),
        (
            "sources: {'a?b': x.mp4}\nstages: {draw: {}}",
            "1:11: a source id is made of letters, digits and _ - . /, got 'a?b'",
        ),
        # things in the wrong place
        (with_stages("x: {stage: source, uri: a.mp4}"), "3:3: source is a source; it stands under sources"),
        ("sources: {a: {stage: draw}}\nstages: {draw: {}}", "1:22: 'draw' is a stage, not a source"),
        (
            with_stages("draw: {insert: {after: x, stage: draw}}"),
            "3:3: insert belongs to a composite such as detect, not to draw",
        ),
        ("tests: 5\n" + SMALL, "1:8: tests must be a list of tests"),
        # files that are missing
        (with_stages("detect: {model: dmo}"), "3:19: detect: there is no model card dmo.yaml in"),
        (with_stages("detect: {model: cards/x.yaml}"), "3:19: detect: there is no card"),
        ("plugins: [plugns]\n" + SMALL, "1:11: there is no plugin file or folder"),
        ("plugins: [{a: 1}]\n" + SMALL, "1:11: plugins must name files or folders, got {'a': 1}"),
        (f"plugins: {'x' * 300}\n" + SMALL, "cannot be a plugin file or folder: File name too long"),
        (with_stages("draw: {run: {queue: [2]}}"), "draw.run.queue must be a whole number, got [2]"),
        # labels that the model does not have
        (
            with_stages("detect: {model: demo, labels: [caar]}"),
            "3:11: detect: demo has no class 'caar'; did you mean 'car'?",
        ),
        (
            with_stages("detect: {model: demo, min_score: {caar: 0.5}}"),
            "3:11: detect: demo has no class 'caar'; did you mean 'car'?",
        ),
        (
            with_stages("detect: {model: demo, labels: [caar, bus], min_score: {bik: 0.5}}"),
            "demo has no class 'caar'; did you mean 'car'? and no class 'bus' and no class 'bik'; did you mean 'bike'?",
        ),
        # wiring
        (with_stages("draw: {from: a}"), "draw.from: there is no stage 'a'; read decode, the frames of all sources"),
        (
            with_stages("draw: {from: detct}", "detect: {from: decode, model: demo}"),
            "3:16: draw.from: there is no stage 'detct'; did you mean 'detect'?",
        ),
        (with_stages("draw: {from: draw}"), "3:16: draw.from: a stage cannot read from itself"),
        (with_stages("draw: {from: []}"), "3:16: draw.from names no stage; leave it out to take the one above"),
        (
            with_stages("detect: {model: demo, insert: {after: preproces, stage: draw}}"),
            "detect has no part 'preproces'; did you mean 'preprocess'?; its parts: preprocess, infer, postprocess",
        ),
        (
            with_stages("detect: {model: demo, insert: {stage: draw}}"),
            "3:33: detect.insert needs {after: PART, stage: NAME} and its options",
        ),
        (
            with_stages("detect: {model: demo, insert: {after: infer, stage: test_pattern}}"),
            "3:55: test_pattern cannot stand between the parts of detect; batch, stream and frame stages can",
        ),
        (
            with_stages("detect: {model: demo, insert: {after: infer, stage: pose, model: demo}}"),
            "3:55: pose cannot stand between the parts of detect; batch, stream and frame stages can",
        ),
        # one file for two
        (
            "sources: {a: samples/street.mp4, b: samples/street.mp4}\nstages: {video: {path: out/a.mp4}}",
            '2:24: video: 2 sources into the one file out/a.mp4; write "{source}" into the path',
        ),
        (
            with_stages("jsonl: {path: out/a}", "x: {stage: jsonl, path: out/a}"),
            "4:27: x: jsonl writes out/a already; give it a path of its own",
        ),
        (
            with_stages("jsonl: {path: out/a}", "x: {stage: csv, path: ./out//a}"),
            "4:25: x: jsonl writes ./out//a already; give it a path of its own",
        ),
    ],
)
def test_problems_are_reported_with_their_position(text, message):
    texts = problems(text)
    assert len(texts) == 1, texts
    assert message in texts[0]
    assert texts[0][0].isdigit()


def test_all_problems_are_reported_in_file_order():
    text = (
        "devise: cpu\nplugins: [no_such]\nsources:\n  a: {uri: x.mp4, loop: maybe}\n  b:\nstages:\n"
        "  detct: {model: demo}\n  draw: {fil: 1, fill: 2}\n  jsonl: {from: nowhere}\n  draw: {}\n"
    )
    texts = problems(text)
    assert [int(line.split(":")[0]) for line in texts] == [1, 2, 4, 5, 7, 8, 8, 9, 9, 10]
    with pytest.raises(ConfigError) as caught:
        build(config(text))
    assert str(caught.value).count("\n") == len(texts) - 1
    assert str(caught.value).startswith("pipeline.yaml:1:1: unknown key 'devise'")


def test_unquoted_braces_are_reported_with_the_fix():
    assert problems(with_stages("jsonl:", "  path: {source}"))[0].startswith("4:11: jsonl.path must be text")
    assert "put quotes around a value with braces in it" in problems(with_stages("jsonl:", "  path: {source}"))[0]
    with pytest.raises(ConfigError, match="put quotes around a value with braces in it"):
        config(with_stages("jsonl: {path: {source}.jsonl}"))


def test_problems_of_a_card_have_positions_in_the_card(tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "task: detect\nfamily: yolov9000\nfile: x.onnx\ninput: {size: [1]}\nlabels: coco\n"
    )
    texts = problems(with_stages("detect: {model: bad}"), tmp_path)
    assert len(texts) >= 2
    assert any("bad.yaml:2:9" in text for text in texts)
    assert any("bad.yaml:4:" in text for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "sources: {a: {uri: 'rtsp://u:SECRET@h/1', loop: 'rtsp://u:SECRET@h/1'}}\nstages: {draw: {}}",
        "sources: {a: {uri: ['rtsp://u:SECRET@h/1']}}\nstages: {draw: {}}",
        "sources: {a: 'rtsp://u:SECRET@h/1'}\nstages: {draw: 'rtsp://u:SECRET@h/1'}",
        "sources: {a: 'test://u:SECRET@h/?framez=1', 'rtsp://u:SECRET@h': x}\nstages: {draw: {}}",
        "sources: {a: x}\nstages: {x: {stage: 'rtsp://u:SECRET@h/1', from: 'rtsp://u:SECRET@h/1'}}",
        "device: 'rtsp://u:SECRET@h'\nsources: {a: x}\nstages: {draw: {color: 'http://h/?token=SECRET'}}",
        "sources: {a: x}\nstages: {webhook: {url: 'http://h/', secret: [SECRET]}}",
        "sources: {a: x}\nstages: {webhook: {url: 'http://h/', secret: {SECRET: 1}}}",
    ],
)
def test_secrets_are_in_no_message(text):
    assert "SECRET" not in "".join(problems(text))
    assert "SECRET" not in "".join(map(str, config(text).warnings))


@pytest.mark.parametrize(
    ("fault", "start"),
    [
        ("{frezee: 5s}", "2:36: a.fault has no option 'frezee'; did you mean 'freeze'?"),
        ("{freeze: {att: 5s, for: 1s}}", "2:45: a.fault.freeze has no option 'att'; did you mean 'at'?"),
        ("{away: {at: 5s}}", "2:42: a.fault.away.for is required"),
        ("{fail: soon}", "2:42: a.fault.fail must be a duration such as 10s"),
        ("{still: {every: 2s, for: 2s}}", "2:35: a.fault: still.for must be less than every"),
        ("{corrupt: {at: 1s, for: 1s, share: 3}}", "2:70: a.fault.corrupt.share must be 0 to 1, got 3"),
        ("5s", "2:35: a.fault must be a mapping, such as {fail: 5s}"),
        ("{}", "2:35: a.fault: no fault is set; name one of fail, freeze, still, corrupt, away"),
    ],
)
@pytest.mark.parametrize("uri", ["uri: samples/xy.mp4", "stage: test_pattern"])
def test_an_invalid_fault_is_reported(fault, start, uri):
    (problem,) = problems(f"sources:\n  a: {{{uri}, fault: {fault}}}\nstages: {{draw: {{}}}}\n")
    assert problem.startswith(start)


NO_STAGES = f"a pipeline needs stages, such as detect and jsonl:{EXAMPLES['stages']}"
NO_SOURCES = f"a pipeline needs sources: an id and a URI for each:{EXAMPLES['sources']}"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "sources: {a: x.mp4}\nstages:\ndraw: {}\n",
            [
                f"2:8: {NO_STAGES}",
                "3:1: unknown key 'draw'; to put it under stages, indent it further than stages:",
            ],
        ),
        (
            "sources:\na: x.mp4\nb: y.mp4\nstages: {draw: {}}\n",
            [
                f"1:9: {NO_SOURCES}",
                "2:1: unknown key 'a'; to put it under sources, indent it further than sources:",
                "3:1: unknown key 'b'; to put it under sources, indent it further than sources:",
            ],
        ),
        (
            "sources: {a: x.mp4}\nstages:\n  detect:\n  model: demo\n",
            [
                "3:10: detect.model is required: the model card: a path, or the name of a card in models/ beside the "
                "YAML or in streamkit; or an .onnx file, whose card is derived.",
                "4:10: the options of model must be a mapping, got 'demo'; to make it an option of detect, indent it "
                "further:\n      detect:\n        model: demo",
            ],
        ),
        (
            "sources: {a: x.mp4}\nstages:\n  detect: {model: demo}\n  min_score: 0.5\n",
            ["4:14: the options of min_score must be a mapping, got 0.5"],
        ),
    ],
    ids=["stage", "sources", "required option", "option of a stage with options"],
)
def test_a_wrong_indentation_is_reported_with_the_right_one(text, reported):
    problems_of_file = [str(problem).removeprefix("pipeline.yaml:") for problem in sorted(read_text(text).problems)]
    assert problems_of_file == reported
