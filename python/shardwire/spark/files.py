"""Files and directories by the file system that Spark itself has, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardwire.errors import ConfigError, ShardwireError
from shardwire.spark.actions import run_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession

# The name of an output that is replaced as a whole; that of a partition has a "=".
_WHOLE = "whole"
_TABLES = {"_delta_log/*.json": "Delta", "metadata/*.metadata.json": "Iceberg"}


def first_line(error: Exception) -> str:
    """What Java says, or Spark, without the page that follows."""
    return str(getattr(error, "java_exception", error)).splitlines()[0]


class Files:
    """Spark's file systems."""

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(type(spark), "read"):
            raise ConfigError(f"spark is a {type(spark).__name__}: it must be a SparkSession")
        # A classic session reaches Java, and a client of Spark Connect does not, by whichever error it says so.
        try:
            context: Any = spark.sparkContext
            self._hadoop: Any = context._jvm.org.apache.hadoop.fs
            self._conf: Any = context._jsc.hadoopConfiguration()
        except Exception:
            if not type(spark).__module__.startswith("pyspark.sql.connect"):
                raise
            raise ConfigError(
                "spark is a Spark Connect session, which does not reach the file system that files are renamed on: "
                "use a classic session, or reconstruct and write what it gives"
            ) from None

    def located(self, path: str) -> tuple[Any, Any]:
        """The file system of a path, and the path on it in full.

        Raises:
            ConfigError: It is no path, or one of a file system that this Spark does not reach.
        """
        try:
            given = self._hadoop.Path(path)
            system = given.getFileSystem(self._conf)
            return system, system.makeQualified(given)
        except (PySparkException, Py4JError) as error:
            raise ConfigError(
                f"{path!r} is no path that this Spark reaches ({first_line(error)}): correct it, or give Spark the "
                "library and the settings of that file system"
            ) from None

    def write_text(self, path: str, text: str) -> None:
        """Writes a file, in the place of one that is there; its directory is made."""
        system, full = self.located(path)
        stream = system.create(full, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def refuse_unwritable(self, name: str, path: str) -> None:
        """Refuses a place, which `name` stands for, beside which nothing can be written.

        Raises:
            ConfigError: It is such a place.
        """
        system, full = self.located(path)
        # A parent that is not there comes into being with the file.
        made = [self._hadoop.Path(f"{full.toString()}.shardwire-probe")]
        while (parent := made[-1].getParent()) is not None and not system.exists(parent):
            made.append(parent)
        try:
            system.create(made[0], True).close()
        except (PySparkException, Py4JError) as error:
            raise ConfigError(
                f"{name} is {path!r}, where nothing can be written ({first_line(error)}): give another place"
            ) from None
        # Whatever another run has put into a parent meanwhile stays, and the parent with it.
        with suppress(PySparkException, Py4JError):
            for one in made:
                system.delete(one, False)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        system, full = self.located(path)
        return bool(system.exists(full))

    def listed(self, path: str) -> list[Any]:
        """What lies in a directory, by name, or the file itself; patterns are resolved. Nothing where there is none."""
        system, full = self.located(path)
        found: list[Any] = []
        for status in system.globStatus(full) or ():
            found += system.listStatus(status.getPath()) if status.isDirectory() else [status]
        return sorted(found, key=lambda status: str(status.getPath().toString()))

    def names_in(self, path: str) -> list[str]:
        """The names in a directory, of which no part is taken for a pattern; nothing where there is none."""
        system, full = self.located(path)
        return [str(one.getPath().getName()) for one in system.listStatus(full)] if system.exists(full) else []

    def is_within(self, inner: str, outer: str) -> bool:
        """Whether a path is another one or lies below it; of a pattern its directory counts."""
        inside, outside = (str(self.located(_plain(path))[1].toString()).rstrip("/") for path in (inner, outer))
        return inside == outside or inside.startswith(f"{outside}/")

    def refuse_overlap(self, source: str, output: str) -> None:
        """Refuses an output that equals, contains or lies in the input: one would destroy the other.

        Raises:
            ConfigError: They overlap.
        """
        if self.is_within(output, source) or self.is_within(source, output):
            raise ConfigError(
                f"the output {output!r} and the input {source!r} overlap: give an output outside the input"
            )

    def refuse_pattern(self, output: str) -> None:
        """Refuses an output that would be written and not be found again.

        Raises:
            ConfigError: Spark reads its name as a pattern.
        """
        if _plain(output) != output:
            raise ConfigError(
                f"the output {output!r} is a pattern to Spark, which reads it again: give a name without *, ?, [ and {{"
            )

    def refuse_foreign(self, path: str, also_ours: Sequence[str] = ()) -> None:
        """Refuses to replace what holds more than rows, and directories of partitions, or of these names.

        Raises:
            ConfigError: It does, or is a file.
        """
        for name in self.names_in(path):
            is_rows = name.startswith(("part-", "_", ".part-", "._")) or name.endswith(".parquet")
            if not is_rows and "=" not in name and name not in also_ours:
                raise ConfigError(
                    f"the output {path!r} is not replaced, since it holds {name!r}, which no job wrote: give another"
                )

    def refuse_table(self, source: str) -> None:
        """Refuses the directory of a table of which only its log says which files are its rows.

        Raises:
            ConfigError: It is one of Delta or Iceberg.
        """
        system, full = self.located(_plain(source))
        for pattern, kind in _TABLES.items():
            if system.globStatus(self._hadoop.Path(full, pattern)):
                raise ConfigError(
                    f"{source!r} is a table of {kind}, whose files are not all its rows: give the DataFrame of "
                    f"spark.read.format({kind.lower()!r}).load({source!r})"
                )


class SinkFiles(Files):
    """An output and the directory beside it where it is made, which `staged` empties."""

    def __init__(self, spark: SparkSession, sink: str, sources: Sequence[str] = (), *, replace: bool = False) -> None:
        super().__init__(spark)
        for source in sources:
            self.refuse_overlap(source, sink)
        self.refuse_pattern(sink)
        self._context = spark.sparkContext
        self._name = sink
        self._staging = f"{sink.rstrip('/')}.shardwire-staging"
        self._system, self._sink = self.located(sink)
        self._replace = replace
        # What is replaced lies here until the new one is in its place: in `_WHOLE`, or in directories named as its own.
        self._replaced = self._hadoop.Path(f"{self._staging}-replaced")
        if not replace and self._system.exists(self._sink):
            raise ConfigError(f"the output {sink!r} exists: give another one, or pass replace=True")
        left = self._hadoop.Path(self._replaced, _WHOLE)
        if not replace and self._system.exists(left):
            raise ConfigError(
                f"the output {sink!r} lies in {str(left.toString())!r}, where a run that was killed left it: move it "
                "to its place, give another one, or pass replace=True"
            )
        self.refuse_unwritable("the output", sink)

    @contextmanager
    def staged(self) -> Iterator[None]:
        """While something is made: what a run that was killed left is put back or removed before, and what is left at
        the end removed."""
        self._put_back()
        self._remove()
        try:
            yield
        finally:
            self._remove()

    def path(self, below: str) -> str:
        """A path below the staging directory."""
        return f"{self._staging}/{below}"

    def write(self, writer: DataFrameWriter, below: str, file_format: str = "parquet") -> None:
        """Writes rows below the staging directory. Where that fails, nothing is written there any more."""
        run_whole(self._context, lambda: writer.format(file_format).save(self.path(below)))

    def names(self, below: str) -> list[str]:
        """The files of a directory below the staging directory."""
        return sorted(name for name in self.names_in(self.path(below)) if not name.startswith(("_", ".")))

    def rename(self, source: str, target: str) -> bool:
        """Renames below the staging directory; False where there is no `source`."""
        if not self._system.exists(self._hadoop.Path(self.path(source))):
            return False
        moved = self._hadoop.Path(self.path(target))
        self._system.mkdirs(moved.getParent())
        self._rename(self.path(source), moved)
        return True

    def publish(self, below: str) -> None:
        """Puts what was made in the sink's place."""
        self._put(self.path(below), self._sink)

    def publish_below(self, below: str, depth: int) -> list[str]:
        """Puts the directories at this depth in the place of those of their names in the sink; the others stay.

        Returns:
            What was put in its place.
        """
        if not self._system.exists(self._sink):
            self.publish(below)
            return [self._name]
        root = str(self.located(self.path(below))[1].toString())
        published = []
        for made in self._directories(self.path(below), depth):
            below = made.removeprefix(f"{root}/")
            self._put(made, self._hadoop.Path(self._sink, below), below)
            published.append(f"{self._name}/{below}")
        return published

    def _put(self, made: str, target: Any, name: str = _WHOLE) -> None:
        """Renames a directory to its place. What it replaces is removed only then, and comes back where that fails."""
        old = self._hadoop.Path(self._replaced, name)
        is_replaced = self._system.exists(target)
        if is_replaced and not self._replace:
            # A renaming would put the one into the other.
            raise ConfigError(f"the output {self._name!r} came to be meanwhile: give another one, or pass replace=True")
        try:
            if is_replaced:
                self._system.delete(self._replaced, True)
                self._system.mkdirs(old.getParent())
                self._rename(str(target.toString()), old)
            self._system.mkdirs(target.getParent())
            self._rename(made, target)
        except BaseException:
            # An interruption may come between the two renamings.
            if is_replaced and not self._system.exists(target):
                self._rename(str(old.toString()), target)
                self._system.delete(self._replaced, True)
            raise
        if is_replaced:
            self._system.delete(self._replaced, True)

    def _put_back(self) -> None:
        """Puts back what a run that was killed between the two renamings had taken from its place."""
        left, target, name = self._replaced, self._sink, ""
        while name != _WHOLE and self._system.exists(left):
            within = [one.getPath() for one in self._system.listStatus(left) if one.isDirectory()]
            name = str(within[0].getName()) if len(within) == 1 else ""
            if name != _WHOLE and "=" not in name:
                break
            left = within[0]
            target = target if name == _WHOLE else self._hadoop.Path(target, name)
        if left.equals(self._replaced):
            return
        if not self._system.exists(target):
            self._system.mkdirs(target.getParent())
            self._rename(str(left.toString()), target)
        self._system.delete(self._replaced, True)

    def _directories(self, path: str, depth: int) -> list[str]:
        listed = [status for status in self.listed(path) if status.isDirectory()]
        paths = [str(status.getPath().toString()) for status in listed]
        return paths if depth == 1 else [found for one in paths for found in self._directories(one, depth - 1)]

    def _remove(self) -> None:
        self._system.delete(self._hadoop.Path(self._staging), True)

    def _rename(self, source: str, target: Any) -> None:
        path = self._hadoop.Path(source)
        if not self._system.rename(path, target):
            raise ShardwireError(f"{path.toString()} could not be renamed to {target.toString()}")


def _plain(path: str) -> str:
    """A path up to the first directory or file that is a pattern."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if any(mark in part for mark in "*?[{"):
            return "/".join(parts[:place]) or "."
    return path
