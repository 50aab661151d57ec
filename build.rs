//! Link arguments of the shared library: its soname, and `-z nodelete`, so that a thread which hangs in the
//! kernel when the library is `dlclose`d can still return into mapped code (R54).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_else(|_| "0".into());
    let name =
        if std::env::var_os("CARGO_FEATURE_FAULT").is_some() { "kvpath_fault" } else { "kvpath" };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}.so.{major}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
