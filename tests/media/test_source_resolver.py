import pytest

from streamkit.core.errors import SourceError
from streamkit.media.source_resolver import image_files, matches, missing_reason, no_media_reason, resolve


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_file_or_address_is_a_single_source():
    assert resolve("a", "clips/a.mp4") == [("a", "source", "clips/a.mp4")]
    assert resolve("a", "http://h/*.mp4?x=[1]") == [("a", "source", "http://h/*.mp4?x=[1]")]
    assert resolve("a", "test://?width=64") == [("a", "test_pattern", "test://?width=64")]
    assert resolve("a", "one.JPG") == [("a", "images", "one.JPG")]


def test_each_video_of_a_folder_is_a_source(tmp_path):
    touch(tmp_path, "v10.mp4", "v2.mp4", "notes.txt", "v2.mkv", "b c.mp4")
    sources = resolve("night", str(tmp_path))
    assert [(i, t) for i, t, _ in sources] == [
        ("night/b_c", "source"),
        ("night/v2.mkv", "source"),
        ("night/v2.mp4", "source"),
        ("night/v10", "source"),
    ]
    assert len({i for i, _, _ in sources}) == 4


def test_equal_stems_get_numbers(tmp_path):
    touch(tmp_path, "x/a.mp4", "y/a.mp4", "z/a.mp4")
    sources = resolve("s", str(tmp_path / "*" / "*.mp4"))
    assert [i for i, _, _ in sources] == ["s/a.mp4", "s/a.mp4-2", "s/a.mp4-3"]


def test_images_are_a_single_source(tmp_path):
    touch(tmp_path, "p2.jpg", "p10.png", "p1.jpg")
    assert resolve("a", str(tmp_path)) == [("a", "images", str(tmp_path))]
    assert [f.rsplit("/", 1)[1] for f in image_files(str(tmp_path))] == ["p1.jpg", "p2.jpg", "p10.png"]
    assert [f.rsplit("/", 1)[1] for f in image_files(str(tmp_path / "p%d.jpg"))] == ["p1.jpg", "p2.jpg"]
    assert resolve("a", str(tmp_path / "*.jpg"))[0][1] == "images"


def test_an_existing_file_takes_precedence_over_a_pattern(tmp_path):
    touch(tmp_path, "a[1].mp4")
    assert resolve("a", str(tmp_path / "a[1].mp4")) == [("a", "source", str(tmp_path / "a[1].mp4"))]


@pytest.mark.parametrize(
    ("names", "pattern", "text"),
    [
        ([], "", "the folder contains no videos or images; put some there, or name another folder"),
        (
            ["a.txt"],
            "",
            "the folder contains no videos or images, among 1 files; put some there, or name another folder",
        ),
        (
            ["sub/a.mp4"],
            "",
            "the folder contains no videos or images; its subfolders are not read; for all of them name "
            "{folder}/**/*.mp4",
        ),
        (["a.txt"], "*.mp4", "the pattern contains no videos or images; check its folder and its suffix"),
        (["a.mp4"], "*.jpg", "the pattern contains no videos or images; check its folder and its suffix"),
        ([], "a.mp4", None),
    ],
)
def test_a_missing_file_is_a_single_source_that_fails_in_the_run(tmp_path, names, pattern, text):
    touch(tmp_path, *names)
    path = str(tmp_path / pattern) if pattern else str(tmp_path)
    text = text and text.format(folder=tmp_path)
    assert resolve("a", path) == [("a", "images" if pattern == "*.jpg" else "source", path)]
    assert no_media_reason(path) == text
    assert missing_reason(path) == (f"there is no file {path}" if text is None else f"{path}: {text}")
    assert matches(str(tmp_path / "*.nothing")) == []


def test_existing_files_are_not_missing(tmp_path):
    touch(tmp_path, "a.mp4", "notes.txt")
    for path in (tmp_path, tmp_path / "*.mp4", tmp_path / "a.mp4", tmp_path / "notes.txt"):
        assert missing_reason(str(path)) is None
    assert missing_reason("http://host/*.mp4") is missing_reason("test://") is None


def test_videos_beside_images_are_refused(tmp_path):
    touch(tmp_path, "a.mp4", "b.jpg")
    with pytest.raises(SourceError, match="contains 1 videos and 1 images; select one kind"):
        resolve("a", str(tmp_path))


def test_an_unknown_scheme_is_refused():
    with pytest.raises(SourceError, match="no scheme htp://; did you mean 'http'"):
        resolve("a", "htp://x")


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(SourceError, match="contains no image"):
        image_files(str(tmp_path))
