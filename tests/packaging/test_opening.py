"""There is one way to open a store: no driver bypasses the migrations and refusals of its directory."""

from tests.packaging.test_imports import imports_of, modules, room_of


def _importers(name: str) -> set[str]:
    return {module for module, path in modules() if any(found.target == name for found in imports_of(path))}


def test_only_migrations_and_benchmarks_open_a_bare_backend() -> None:
    importers = _importers("millpond.stores.backend.registry.open_backend")
    library = {module for module in importers if room_of(module) != "bench" and ".testing." not in module}
    assert library == {"millpond.stores", "millpond.stores.specs.migration"}, "the package only hands it on"


def test_only_those_who_do_not_migrate_it_open_a_directory_in_the_version_that_it_is_in() -> None:
    importers = {
        module for module in _importers("millpond.stores.specs.migration.open_version") if room_of(module) != "bench"
    }
    on_a_duplicate, beside_the_old, to_see_where = "checking.copy_verification", "copies.preparation", "copies.others"
    expected = (on_a_duplicate, beside_the_old, to_see_where)
    assert importers == {f"millpond.stores.durability.{name}" for name in expected}


def test_only_a_place_opens_a_directory_and_the_benchmark_of_that() -> None:
    importers = _importers("millpond.stores.specs.migration.open_directory")
    assert importers == {"millpond.stores.specs.location", "millpond.bench.stores.place"}
