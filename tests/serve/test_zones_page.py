"""Drawing areas and lines over a camera's picture, and editing the YAML, in a real browser."""

import re
import time

import pytest
from support.pages import CHROMIUM, PHONE, chromium_fixture, expect, open_page_fixture, shoot, wide  # noqa: F401  fixtures
from support.servers import SECRET, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

TEXT = f"""\
# the shop
sources:
  street: {{uri: samples/street.mp4, every: 3, pace: 10, loop: true}}   # a file
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
stages:
  detect: {{model: demo}}   # the model
  track: {{}}
  till:            # who waits
    stage: zone
    units:   share
    polygon:
      # at the till
      far: [[0, 0], [0.01, 0], [0.01, 0.01]]   # nothing is here
    debounce: 0s

  door: {{stage: line_counter, line: [[320, 60], [320, 340]]}}
  draw: {{}}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("zones") / "shop.yaml"


@pytest.fixture(scope="module")
def server(root, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(TEXT, root, path=path) as zone_server:
            zone_server.running("street")
            yield zone_server


@pytest.fixture(autouse=True)
def as_before(server, path):
    def applied():
        return server.client.get("/api/v1/config").json()["applied"] and server.engine.ready

    yield
    if path.read_text() != TEXT:
        path.write_text(TEXT)
    server.until(applied)


def zones(open_page, server, stage="till", **options):
    page = open_page(**options)
    page.goto(f"{server.url}#/zones?source=street&stage={stage}")
    expect(page.locator(".board img")).to_be_visible()
    return page


def at(page, x, y):
    """The place on the screen of a share of the picture."""
    box = page.locator(".board svg").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def lines(diff_or_text):
    return diff_or_text.splitlines()


def changed(path):
    """The lines that are new in the file."""
    return [line for line in lines(path.read_text()) if line not in lines(TEXT)]


def removed_lines(path):
    return [line for line in lines(TEXT) if line not in lines(path.read_text())]


def apply(page):
    press(page, "Show changes and apply")
    shown = page.locator("dialog.changes")
    expect(shown).to_be_visible()
    diff = shown.locator(".diff").inner_text()
    shown.get_by_role("button", name="Save and apply").click()
    expect(page.locator(".zones .state")).to_have_text("shop.yaml is saved and applied.", timeout=60_000)
    return diff


# ---------------------------------------------------------------------------------------------------------------- zones


def test_a_zone_drawn_by_mouse_is_saved_and_emits_events(open_page, server, path):
    page = zones(open_page, server)
    expect(page.locator(".shapes input")).to_have_count(1)
    press(page, "Add an area")
    for x, y in ((0.002, 0.1), (0.999, 0.1), (0.999, 0.999), (0.002, 0.999)):
        page.mouse.click(*at(page, x, y))
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Name of shape 2").fill("whole street")
    page.get_by_role("textbox", name="Name of shape 2").press("Enter")
    shoot(page, "zones")
    restarts = server.engine.running.report(0).get("restarts")
    diff = apply(page)
    assert server.engine.running.report(0).get("restarts") == restarts  # no camera has to connect again
    assert "# nothing is here" in diff
    assert removed_lines(path) == []
    line, *sources = changed(path)
    assert sources == ["    sources:", '      "whole street": [street]']  # a new shape is for the camera it is drawn on
    assert re.fullmatch(r'      "whole street": \[\[0, 0\.\d+\], \[1, 0\.\d+\], \[1, 1\], \[0, 1\]\]', line), line
    server.until(
        lambda: [
            event
            for event in server.client.get("/api/v1/events?limit=500").json()
            if event["kind"] == "entered" and event["data"].get("zone") == "whole street"
        ]
    )
    expect(page.locator(".shapes input")).to_have_count(2)
    expect(page.get_by_role("button", name="Show changes and apply")).to_be_disabled()


def test_a_shape_applies_to_a_single_camera_or_to_all(open_page, server, path):
    page = zones(open_page, server, "till")
    camera = page.get_by_label("Cameras of far")
    expect(camera).to_have_value("")
    camera.select_option(label="Only street")
    apply(page)
    assert changed(path) == ["    sources:", "      far: [street]"]
    page.get_by_label("Camera", exact=True).select_option("gate")
    expect(page.locator(".zones .help").first).to_contain_text("1 shapes of other cameras are not shown.")
    expect(page.locator(".shapes li:visible")).to_have_count(0)
    expect(page.locator(".board .shape")).to_have_count(0)
    page.get_by_label("Camera", exact=True).select_option("street")
    expect(page.locator(".board .shape")).to_have_count(1)
    camera.select_option(label="All cameras")
    apply(page)
    assert path.read_text() == TEXT


def test_points_are_dragged_inserted_and_deleted_and_each_step_is_undone(open_page, server):
    page = zones(open_page, server, "door")

    def points():
        return page.locator(".board .shape").first.get_attribute("points")

    page.mouse.click(*at(page, 0.5, 0.7))  # selects the line
    before = points()
    assert before == "320,60 320,340"
    page.mouse.move(*at(page, 0.5, 340 / 360))
    page.mouse.down()
    page.mouse.move(*at(page, 0.75, 0.75), steps=4)
    page.mouse.up()
    moved = points()
    x, y = map(float, moved.split()[1].split(","))
    assert abs(x - 480) < 2
    assert abs(y - 270) < 2
    page.mouse.move(*at(page, (320 + x) / 2 / 640, (60 + y) / 2 / 360))  # the small circle in the middle
    page.mouse.down()
    page.mouse.move(*at(page, 0.2, 0.5), steps=4)
    page.mouse.up()
    assert len(points().split()) == 3
    page.mouse.dblclick(*at(page, 0.2, 0.5))
    assert points() == moved
    for _ in range(3):
        press(page, "Undo")
    assert points() == before
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()
    page.keyboard.press("Control+y")
    assert points() == moved
    page.keyboard.press("Control+z")
    assert points() == before


def test_a_shape_moves_as_a_whole_within_the_image(open_page, server):
    page = zones(open_page, server, "door")
    page.mouse.move(*at(page, 0.5, 0.7))
    page.mouse.down()
    page.mouse.move(*at(page, 0.99, 0.1), steps=4)
    page.mouse.up()
    first, second = page.locator(".board .shape").first.get_attribute("points").split()
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in (first, second))
    assert y0 == 0
    assert y1 == 280
    assert x0 == x1 > 600


def test_zones_are_edited_by_keyboard(open_page, server, path):
    page = zones(open_page, server, "door")
    page.get_by_role("button", name="Line without a name, 2 points").focus()
    page.keyboard.press("Tab")
    point = page.get_by_role("button", name=re.compile("^Point 1 of"))
    expect(point).to_be_focused()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="Point 1 of without a name, x 330, y 61")).to_be_focused()
    expect(page.locator("#said")).to_have_text("x 330, y 61")
    page.get_by_role("button", name="Swap in and out of without a name").press("Enter")
    apply(page)
    assert changed(path) == ["  door: {stage: line_counter, line: [[320, 340], [330, 61]]}"]
    assert len(removed_lines(path)) == 1


def test_a_shape_is_drawn_by_keyboard(open_page, server):
    page = zones(open_page, server)
    page.get_by_role("button", name="Add an area").press("Enter")
    for keys in (("Space",), ("Shift+ArrowRight", "Space"), ("Shift+ArrowDown", "Space", "Enter")):
        for key in keys:
            page.keyboard.press(key)
    drawn = page.locator(".board .selected .shape").get_attribute("points")
    assert drawn == "320,180 330,180 330,190"
    expect(page.get_by_role("button", name="Area area1, 3 corners")).to_be_focused()
    page.keyboard.press("Delete")
    expect(page.locator(".board .shape")).to_have_count(1)


def test_the_arrow_of_a_line_points_to_the_side_that_counts_as_in(open_page, server):
    """Seen from the first point toward the next, from left to right: of a line downwards, the left of the picture."""
    page = zones(open_page, server, "door")

    def tip():
        return float(page.locator(".board .way").first.get_attribute("points").split()[0].split(",")[0])

    assert tip() < 320
    press(page, "Swap in and out of without a name")
    assert tip() > 320


def test_a_mask_is_visible_on_the_live_image(open_page, server, path):
    page = zones(open_page, server, "draw")
    page.get_by_label("Draw", exact=True).select_option(label="draw: privacy masks (pixelate.zone)")
    press(page, "Add a mask")
    for x, y in ((0.01, 0.01), (0.99, 0.01), (0.99, 0.5), (0.01, 0.5)):
        page.mouse.click(*at(page, x, y))
    page.keyboard.press("Enter")
    before = detail(page)
    apply(page)
    assert changed(path) == [
        "  draw: {pixelate: {zone: {mask1: " + path.read_text().split("mask1: ")[1].splitlines()[0]
    ]
    assert path.read_text().rstrip().endswith("units: share}}")
    shoot(page, "mask")
    server.until(lambda: detail(page) < before / 2)
    page.get_by_role("button", name="Remove mask1").click()
    apply(page)
    assert path.read_text() == TEXT


def detail(page):
    """How much neighboring pixels differ at the top of the live picture, where no labels are."""
    return page.evaluate("""async () => {
      const answer = await fetch("/api/v1/sources/street/snapshot.jpg");
      if (!answer.ok) return 1e9;
      const bitmap = await createImageBitmap(await answer.blob());
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext("2d");
      context.drawImage(bitmap, 0, 0);
      const { data } = context.getImageData(60, 18, 240, 26);
      let sum = 0;
      for (let n = 4; n < data.length; n += 4) sum += Math.abs(data[n] - data[n - 4]);
      return sum / data.length;
    }""")


def test_a_file_changed_on_disk_is_not_overwritten(open_page, server, path):
    page = zones(open_page, server, "door")
    press(page, "Swap in and out of without a name")
    path.write_text(other := TEXT.replace("# the shop", "# by another editor"))
    press(page, "Show changes and apply")
    expect(page.locator(".zones .error")).to_contain_text("has changed since it was read")
    assert path.read_text() == other
    press(page, "Read the file again")
    expect(page.get_by_role("button", name="Read the file again")).to_be_hidden()
    apply(page)
    assert path.read_text() == other.replace("[[320, 60], [320, 340]]", "[[320, 340], [320, 60]]")


def test_a_self_intersecting_shape_is_reported_and_not_saved(open_page, server, path):
    page = zones(open_page, server)
    press(page, "Add an area")
    for x, y in ((0.2, 0.2), (0.8, 0.8), (0.8, 0.2), (0.2, 0.8)):
        page.mouse.click(*at(page, x, y))
    press(page, "Finish")
    press(page, "Show changes and apply")
    shown = page.locator("dialog.changes")
    expect(shown.locator(".problems")).to_contain_text(
        re.compile(r"line 14, column \d+: .*must not cross or touch itself")
    )
    expect(shown.get_by_role("button", name="Save and apply")).to_be_disabled()
    shown.get_by_role("button", name="Cancel").click()
    assert path.read_text() == TEXT


def test_signed_out_users_see_neither_images_nor_the_yaml(open_page, server):
    page = open_page(token=None)
    for view, words in (("zones", "Sign in to draw"), ("config", "Sign in to read and edit")):
        page.goto(f"{server.url}#/{view}")
        expect(page.locator(f".{view} .empty")).to_contain_text(words)
        assert SECRET not in page.content()
        expect(page.locator(".board, .code")).not_to_be_visible()


@pytest.mark.parametrize("view", ["zones", "config"])
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_both_views_fit_a_phone(open_page, server, view, scheme):
    page = open_page(viewport=PHONE, color_scheme=scheme)
    page.goto(f"{server.url}#/{view}")
    expect(page.locator(f".{view} .primary")).to_be_visible()
    page.wait_for_timeout(500)
    assert wide(page) <= 0
    shoot(page, f"{view}-phone-{scheme}")


# --------------------------------------------------------------------------------------------------------------- config


def config(open_page, server, **options):
    page = open_page(**options)
    page.goto(f"{server.url}#/config")
    expect(page.locator("#config-text")).to_have_value(TEXT)
    expect(page.locator("#config-state")).to_have_text("The text is valid.")
    return page


def put_cursor(page, behind):
    """Put the cursor behind a text."""
    page.locator("#config-text").evaluate(
        "(area, behind) => { area.focus(); const at = area.value.indexOf(behind) + behind.length;"
        " area.setSelectionRange(at, at); }",
        behind,
    )


def test_problems_are_marked_at_their_line_while_typing(open_page, server, path):
    page = config(open_page, server)
    put_cursor(page, "debounce")
    page.keyboard.type("d")
    page.keyboard.press("Escape")
    expect(page.locator(".gutter .bad")).to_have_text("14")
    expect(page.locator(".config .problems")).to_contain_text("line 14, column 5: zone has no option 'debounced'")
    expect(page.locator("#config-state")).to_have_text("1 problem")
    top = page.locator(".marks i").evaluate("one => one.getBoundingClientRect().top")
    line = page.locator(".gutter .bad").evaluate("one => one.getBoundingClientRect().top")
    assert abs(top - line) < 2
    shoot(page, "config")
    press(page, "Show changes and save")
    expect(page.locator("dialog.changes").get_by_role("button", name="Save and apply")).to_be_disabled()
    page.keyboard.press("Escape")
    press(page, "Revert")
    expect(page.locator("#config-text")).to_have_value(TEXT)
    assert path.read_text() == TEXT


def test_completion_offers_keys_and_values_of_the_place(open_page, server, path):
    page = config(open_page, server)
    put_cursor(page, "debounce: 0s")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Space")
    offered = page.locator(".completions strong")
    expect(offered.filter(has_text="loitering")).to_have_count(1)
    assert "debounce" not in offered.all_inner_texts()  # is there already
    page.keyboard.type("anch")
    expect(offered).to_have_text(["anchor"])
    expect(page.locator(".completions small")).to_contain_text("the point of a box")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+Space")
    expect(offered).to_have_text(["foot", "center", "top", "left", "right"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "    debounce: 0s\n    anchor: center\n" in page.locator("#config-text").input_value()
    page.keyboard.press("Control+s")
    shown = page.locator("dialog.changes")
    expect(shown.locator(".added")).to_have_text(re.compile("anchor: center"))
    shown.get_by_role("button", name="Save and apply").click()
    expect(page.locator("#config-state")).to_have_text("shop.yaml is saved and applied.", timeout=60_000)
    assert changed(path) == ["    anchor: center"]
    assert server.engine.graph.nodes["till"].options["anchor"] == "center"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|", ["sources", "stages", "device"]),
        ("stages:\n  zo|", ["zone"]),
        ("stages:\n  zone: {po|", ["polygon"]),
        ("stages:\n  a: {stage: zon|", ["zone"]),
        ("stages:\n  a:\n    stage: line_counter\n    li|", ["line"]),
        ("stages:\n  draw:\n    color: |", ["class", "track"]),
        ("stages:\n  draw: {color: |", ["class", "track"]),
        ("stages:\n  zone: {units: sh|", ["share"]),
        ("stages:\n  draw:\n    blur:\n      un|", ["units"]),
        ("sources:\n  gate:\n    pac|", ["pace"]),
        ("device:\n  us|", ["use"]),
        ("stages:\n  track:\n    run: {on_error: st|", ["stop"]),
    ],
)
def test_completions_depend_on_the_position(open_page, server, text, expected):
    page = open_page()
    completions = page.evaluate(
        """async ([text, at]) => {
          const { complete } = await import("/page/yaml_complete.js");
          const schema = await (await fetch("/api/v1/config/schema")).json();
          return complete(schema, text, at).found.map((one) => one.label);
        }""",
        [text.replace("|", ""), text.index("|")],
    )
    assert set(expected) <= set(completions), completions
    if text != "|":
        assert len(completions) <= len(expected) + 3


def test_an_edit_by_another_editor_that_is_invalid_is_shown(open_page, server, path):
    page = config(open_page, server)
    path.write_text(TEXT.replace("debounce", "debonce"))
    expect(page.locator("#status")).to_have_attribute("title", re.compile("edit of the YAML is not applied"))
    expect(page.locator(".config .state.bad").first).to_contain_text("debonce")
    path.write_text(TEXT)
    expect(page.locator("#status")).not_to_have_attribute("title", re.compile("edit of the YAML is not applied"))


def test_two_browsers_do_not_overwrite_each_other(open_page, server, path):
    first = config(open_page, server)
    second = config(open_page, server)
    for page, word in ((first, "one"), (second, "two")):
        put_cursor(page, "# the shop")
        page.keyboard.type(f" {word}")
        page.keyboard.press("Escape")
    for page in (first, second):
        page.keyboard.press("Control+s")
        page.locator("dialog.changes").get_by_role("button", name="Save and apply").click()
        time.sleep(0.3)
    expect(second.locator("dialog.changes .error")).to_contain_text("has changed since it was read")
    assert lines(path.read_text())[0] == "# the shop one"


# --------------------------------------------------------------------------------------------------------------- drafts


def visit(page, view):
    page.evaluate("view => { location.hash = `#/${view}`; }", view)
    expect(page.locator(f'main[data-view="{view}"]:visible').get_by_role("heading").first).to_be_visible()


def marked(page):
    """The views that the navigation marks as having unsaved changes."""
    return page.locator("#views a:has(.unsaved)").evaluate_all("links => links.map((link) => link.dataset.view)")


def test_unsaved_text_survives_a_change_of_view(open_page, server, path):
    page = config(open_page, server)
    put_cursor(page, "# the shop")
    page.keyboard.type(" around the corner")
    page.keyboard.press("Escape")
    visit(page, "live")
    assert marked(page) == ["config"]
    visit(page, "config")
    draft = TEXT.replace("# the shop", "# the shop around the corner")
    expect(page.locator("#config-text")).to_have_value(draft)
    expect(page.locator(".config .state").filter(has_text="Your unsaved changes are here.")).to_be_visible()
    shoot(page, "config-draft")
    press(page, "Show changes and save")
    page.locator("dialog.changes").get_by_role("button", name="Save and apply").click()
    expect(page.locator("#config-state")).to_have_text("shop.yaml is saved and applied.", timeout=60_000)
    assert path.read_text() == draft
    assert marked(page) == []


def test_unsaved_text_does_not_overwrite_a_newer_file(open_page, server, path):
    page = config(open_page, server)
    put_cursor(page, "# the shop")
    page.keyboard.type(" here")
    page.keyboard.press("Escape")
    visit(page, "live")
    path.write_text(other := TEXT.replace("# the shop", "# by another editor"))
    visit(page, "config")
    expect(page.locator(".config .error")).to_contain_text("The file has changed on the disk.")
    expect(page.locator("#config-text")).to_have_value(TEXT.replace("# the shop", "# the shop here"))
    press(page, "Show changes and save")
    page.locator("dialog.changes").get_by_role("button", name="Save and apply").click()
    expect(page.locator("dialog.changes .error")).to_contain_text("has changed since it was read")
    page.locator("dialog.changes").get_by_role("button", name="Cancel").click()
    assert path.read_text() == other
    press(page, "Revert")
    expect(page.locator("#config-text")).to_have_value(other)
    assert marked(page) == []


def test_unsaved_and_unfinished_shapes_survive_a_change_of_view(open_page, server, path):
    page = zones(open_page, server, "door")
    press(page, "Swap in and out of without a name")
    page.get_by_label("Draw", exact=True).select_option(label="till: areas (polygon)")
    press(page, "Add an area")
    for x, y in ((0.2, 0.2), (0.8, 0.2), (0.8, 0.8)):
        page.mouse.click(*at(page, x, y))
    visit(page, "events")
    assert marked(page) == ["zones"]
    visit(page, "zones")
    expect(page.get_by_label("Draw", exact=True)).to_have_value("1")
    expect(page.locator(".board circle.way")).to_have_count(3)
    press(page, "Finish")
    apply(page)
    expect(page.locator(".shapes input")).to_have_count(2)
    assert removed_lines(path) == []
    assert marked(page) == ["zones"]  # the line of the other stage is not saved yet
    page.get_by_label("Draw", exact=True).select_option(label="door: lines (line)")
    apply(page)
    assert removed_lines(path) == ["  door: {stage: line_counter, line: [[320, 60], [320, 340]]}"]
    assert marked(page) == []


def test_an_unapplied_setting_stays_in_its_form(open_page, server):
    page = open_page(view="pipeline")
    page.locator('[data-stage="detect.postprocess"]').click()
    field = page.get_by_label("top_k", exact=True)
    field.fill("7")
    page.locator('[data-stage="door"]').click()
    page.locator('[data-stage="detect.postprocess"]').click()
    expect(field).to_have_value("7")
    visit(page, "events")
    assert marked(page) == ["pipeline"]
    visit(page, "pipeline")
    page.locator('[data-stage="detect.postprocess"]').click()
    expect(field).to_have_value("7")
    press(page, "Apply")
    expect(page.locator(".setting-history")).to_contain_text("7")
    assert marked(page) == []
    field.fill("8")
    field.fill("7")  # as it is applied
    assert marked(page) == []


def test_unsaved_changes_are_confirmed_before_closing_or_signing_out(open_page, server):
    page = config(open_page, server)
    put_cursor(page, "# the shop")
    page.keyboard.type("!")
    page.keyboard.press("Escape")
    dialogs = []
    page.once("dialog", lambda dialog: (dialogs.append(dialog.type), dialog.dismiss()))
    page.evaluate("location.reload()")
    page.wait_for_timeout(300)
    assert dialogs == ["beforeunload"]
    press(page, "Sign out")
    expect(page.locator("dialog:visible")).to_contain_text("Configuration")
    press(page, "Cancel")
    expect(page.locator("#config-text")).to_have_value(TEXT.replace("# the shop", "# the shop!"))
    press(page, "Sign out")
    press(page, "Discard and sign out")
    expect(page.locator(".config .empty")).to_contain_text("Sign in to read and edit")
    assert marked(page) == []
