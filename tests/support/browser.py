"""A real browser without a window, shared by the tests of pages."""

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def require() -> None:
    """Skip the test where there is no browser, except in continuous integration."""
    missing = [path for path in (CHROMIUM, DRIVER) if not Path(path).exists()]
    if not missing:
        return
    reason = f"{' and '.join(missing)} missing: apt-get install chromium chromium-driver"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _start() -> webdriver.Chrome:
    profile = tempfile.mkdtemp(prefix="adasparse-chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))

    def stop() -> None:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)

    atexit.register(stop)
    return driver


class Page:
    """The browser with one page open, and short ways to use it."""

    def __init__(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False):
        require()
        self.driver = _start()
        self.url = url
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(url)
        self.wait(lambda: self.all("#grid .cell"))

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of the first element that matches, none if there is none."""
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((x) => x.textContent)"
        return self.run(script, selector)

    def click(self, selector: str) -> None:
        def has_clicked() -> bool:
            element = self.one(selector)
            self.run("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        # A page that shows an answer at this moment may replace the element.
        WebDriverWait(self.driver, 10, ignored_exceptions=[StaleElementReferenceException]).until(
            lambda _: has_clicked()
        )

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select, as a reader would."""
        self.run(
            "arguments[0].value = arguments[1];"
            "arguments[0].dispatchEvent(new Event('change', {bubbles: true}))",
            self.one(selector),
            value,
        )

    def slide(self, selector: str, value: float) -> None:
        self.run(
            "arguments[0].value = arguments[1];"
            "arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.one(selector),
            value,
        )

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def hover(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a place in an element, from its upper left corner."""
        element = self.one(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        box = self.run("return arguments[0].getBoundingClientRect().toJSON()", element)
        self.command(
            "Input.dispatchMouseEvent",
            type="mouseMoved",
            x=box["x"] + x,
            y=box["y"] + y,
        )

    def wait(self, condition: Any, seconds: float = 10) -> Any:
        return WebDriverWait(self.driver, seconds, poll_frequency=0.02).until(lambda _: condition())

    def frame(self) -> None:
        """Let the page draw what it has to."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def fragment(self) -> dict[str, str]:
        """What the address says is being looked at."""
        script = "return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        return self.run(script)

    def scrolls_sideways(self) -> bool:
        return self.run(
            "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )

    def pixels(self, selector: str, places: list[tuple[float, float]]) -> list[tuple[int, ...]]:
        """The colors of a canvas at places in CSS pixels."""
        self.frame()
        script = (
            "const [canvas, places] = arguments;"
            "const copy = new OffscreenCanvas(canvas.width, canvas.height);"
            "const context = copy.getContext('2d', { willReadFrequently: true });"
            "context.drawImage(canvas, 0, 0);"
            "return places.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data])"
        )
        return [tuple(color) for color in self.run(script, self.one(selector), places)]

    def complaints(self) -> list[str]:
        """What the browser logged: errors, warnings, blocked content."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, but for the page itself and data."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        own = self.url.partition("#")[0]
        return [
            url for url in found if url.partition("#")[0] != own and not url.startswith("data:")
        ]

    def check_quiet(self) -> None:
        """Nothing was logged, nothing was executed, nothing outside was asked for."""
        assert self.complaints() == []
        assert self.requests() == []
        resources = "return performance.getEntriesByType('resource').map((x) => x.name)"
        assert [x for x in self.run(resources) if not x.startswith("data:")] == []
