//! Docstrings of the native module: they stand in its stub, `python/shardwire/_native.pyi`, which editors read, and
//! `help()` shows them.

mod docstrings;

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Fields, ImplItem, Item, Meta, Type, parse_quote};

const STUB: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../python/shardwire/_native.pyi"
);

static DOCSTRINGS: LazyLock<HashMap<String, Option<String>>> = LazyLock::new(|| {
    // What cannot be read has no docstrings; `include_bytes` says so.
    docstrings::docstrings(&std::fs::read_to_string(Path::new(STUB)).unwrap_or_default())
});

/// Gives a `pyclass` and its fields, the functions of `pymethods` or a `pyfunction` the docstrings that they have in the
/// stub. Stands before those.
///
/// An item with a docstring of its own is an error: there would be two. Without one, it must be private to Rust.
#[proc_macro_attribute]
pub fn documented(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = syn::parse_macro_input!(item as Item);
    match document(&mut item) {
        Ok(()) => {
            // So that a changed stub has the module compiled again.
            quote! {
                const _: &[u8] = include_bytes!(#STUB);
                #item
            }
            .into()
        }
        Err(error) => error.into_compile_error().into(),
    }
}

fn document(item: &mut Item) -> Result<(), Error> {
    match item {
        Item::Fn(function) => {
            let name = name_of(&function.attrs).unwrap_or_else(|| function.sig.ident.to_string());
            set(&mut function.attrs, &name)
        }
        Item::Struct(class) => {
            let name = class.ident.to_string();
            set(&mut class.attrs, &name)?;
            let Fields::Named(fields) = &mut class.fields else {
                return Ok(());
            };
            for field in &mut fields.named {
                let field_name = field
                    .ident
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let told = DOCSTRINGS.get(&format!("{name}.{field_name}"));
                if let Some(Some(docstring)) = told {
                    put(&mut field.attrs, docstring)?;
                }
            }
            Ok(())
        }
        Item::Impl(methods) => {
            let Type::Path(class) = &*methods.self_ty else {
                return Err(Error::new(methods.span(), "methods of no class"));
            };
            let class = class.to_token_stream().to_string();
            for method in &mut methods.items {
                let ImplItem::Fn(method) = method else {
                    continue;
                };
                let called = method.sig.ident.to_string();
                let name = name_of(&method.attrs).unwrap_or(called);
                let is_special = name.starts_with("__")
                    || method.attrs.iter().any(|one| one.path().is_ident("new"));
                if !is_special {
                    set(&mut method.attrs, &format!("{class}.{name}"))?;
                }
            }
            Ok(())
        }
        _ => Err(Error::new(item.span(), "no class, methods or function")),
    }
}

/// The name in Python, where it is another one: that of `#[pyo3(name = "...")]`.
fn name_of(attributes: &[Attribute]) -> Option<String> {
    let mut name = None;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("pyo3")) {
        // What else it holds is for PyO3 to read.
        let _ = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
            }
            Ok(())
        });
    }
    name
}

fn set(attributes: &mut Vec<Attribute>, name: &str) -> Result<(), Error> {
    match DOCSTRINGS.get(name) {
        Some(Some(docstring)) => put(attributes, docstring),
        _ => none_of_its_own(attributes),
    }
}

fn put(attributes: &mut Vec<Attribute>, docstring: &str) -> Result<(), Error> {
    none_of_its_own(attributes)?;
    attributes.insert(0, parse_quote!(#[doc = #docstring]));
    Ok(())
}

fn none_of_its_own(attributes: &[Attribute]) -> Result<(), Error> {
    let own = attributes
        .iter()
        .find(|one| one.path().is_ident("doc") && matches!(one.meta, Meta::NameValue(_)));
    own.map_or(Ok(()), |own| {
        Err(Error::new(
            own.span(),
            "a docstring of the module stands in python/shardwire/_native.pyi alone",
        ))
    })
}
