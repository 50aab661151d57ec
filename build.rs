//! Link arguments of the shared library: its soname, and `-z nodelete`, so that a thread which hangs in the
//! kernel when the library is `dlclose`d can still return into mapped code (R54).

/// What the soname ends with. Before 1.0.0 a minor version may break the ABI, so it is part of the name;
/// CMakeLists.txt has the same rule.
fn soversion() -> String {
    let number = |name| std::env::var(name).unwrap_or_else(|_| "0".into());
    let major = number("CARGO_PKG_VERSION_MAJOR");
    if major == "0" { format!("0.{}", number("CARGO_PKG_VERSION_MINOR")) } else { major }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let name =
        if std::env::var_os("CARGO_FEATURE_FAULT").is_some() { "kvpath_fault" } else { "kvpath" };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}.so.{}", soversion());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
