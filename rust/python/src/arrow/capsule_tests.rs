//! Every type, sliced and with nulls, goes through the structures and comes back; structures that lie are refused; and
//! whatever becomes of an array, it is released once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use arrow_array::builder::{
    BinaryBuilder, BinaryViewBuilder, Decimal128Builder, FixedSizeBinaryBuilder, Int32Builder,
    ListBuilder, MapBuilder, StringBuilder, StringDictionaryBuilder, StringViewBuilder,
};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeListArray, Int64Array, LargeBinaryArray,
    LargeListArray, NullArray, StructArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::Fields;

use super::*;

/// The second is too long for a view to hold it by itself.
const WORDS: [Option<&str>; 5] = [
    Some("a"),
    Some("a long value in a buffer"),
    None,
    Some(""),
    Some("ab"),
];

fn bytes() -> impl Iterator<Item = Option<&'static [u8]>> {
    WORDS.iter().map(|word| word.map(str::as_bytes))
}

/// Arrays of five rows of every type that is read, nulls among them.
fn arrays() -> Vec<ArrayRef> {
    let numbers = || [Some(1), None, Some(3), Some(-4), None].into_iter();
    let mut fixed = FixedSizeBinaryBuilder::new(2);
    let mut decimal = Decimal128Builder::new();
    for number in numbers() {
        match number {
            Some(_) => fixed.append_value([1, 2]).unwrap(),
            None => fixed.append_null(),
        }
        decimal.append_option(number.map(i128::from));
    }
    let (mut lists, mut maps) = (
        ListBuilder::new(BinaryBuilder::new()),
        MapBuilder::new(None, StringBuilder::new(), Int32Builder::new()),
    );
    for (row, word) in bytes().enumerate() {
        for _ in 0..row % 3 {
            lists.values().append_option(word);
        }
        lists.append(row != 3);
        maps.keys().append_value(row.to_string());
        maps.values()
            .append_option(word.map(|word| word.len() as i32));
        maps.append(row != 1).unwrap();
    }
    let (lists, mut views, mut text_views) = (
        lists.finish(),
        BinaryViewBuilder::new(),
        StringViewBuilder::new(),
    );
    let mut dictionary = StringDictionaryBuilder::<Int8Type>::new();
    for word in WORDS {
        views.append_option(word.map(str::as_bytes));
        text_views.append_option(word);
        dictionary.append_option(word);
    }
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let long_lists = LargeListArray::new(
        Arc::new(Field::new("item", DataType::Binary, true)),
        OffsetBuffer::new(
            lists
                .value_offsets()
                .iter()
                .map(|end| i64::from(*end))
                .collect(),
        ),
        Arc::clone(lists.values()),
        lists.nulls().cloned(),
    );
    let pairs = FixedSizeListArray::new(
        item,
        2,
        Arc::new(Int64Array::from_iter(numbers().chain(numbers()))),
        None,
    );
    let fields: Fields = vec![
        Field::new("words", DataType::Utf8, true),
        Field::new("lists", lists.data_type().clone(), true),
    ]
    .into();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(WORDS)),
        Arc::new(lists.clone()),
    ];
    let valid = NullBuffer::from(vec![true, true, false, true, true]);
    vec![
        Arc::new(NullArray::new(5)),
        Arc::new(BooleanArray::from_iter(numbers().map(|n| n.map(|n| n > 0)))),
        Arc::new(Int64Array::from_iter(numbers())),
        Arc::new(TimestampMicrosecondArray::from_iter(numbers()).with_timezone("UTC")),
        Arc::new(TimestampNanosecondArray::from_iter(numbers())),
        Arc::new(decimal.finish()),
        Arc::new(fixed.finish()),
        Arc::new(BinaryArray::from_iter(bytes())),
        Arc::new(LargeBinaryArray::from_iter(bytes())),
        Arc::new(views.finish()),
        Arc::new(StringArray::from_iter(WORDS)),
        Arc::new(LargeStringArray::from_iter(WORDS)),
        Arc::new(text_views.finish()),
        Arc::new(dictionary.finish()),
        Arc::new(lists),
        Arc::new(long_lists),
        Arc::new(pairs),
        Arc::new(maps.finish()),
        Arc::new(StructArray::new(fields, columns, Some(valid))),
    ]
}

/// Counts how often the structures of one thread's test are released.
#[derive(Default)]
struct Released {
    arrays: usize,
    schemas: usize,
    streams: usize,
}

thread_local! {
    static RELEASED: RefCell<Released> = RefCell::default();
}

fn released() -> Released {
    RELEASED.take()
}

struct Counted<F, P> {
    release: F,
    private_data: P,
}

type ArrayRelease = unsafe extern "C" fn(*mut FFI_ArrowArray);
type SchemaRelease = unsafe extern "C" fn(*mut FFI_ArrowSchema);

unsafe extern "C" fn release_array(array: *mut FFI_ArrowArray) {
    RELEASED.with_borrow_mut(|released| released.arrays += 1);
    // SAFETY: `array_that_counts` put it there.
    unsafe {
        let counted = Box::from_raw(
            (*array)
                .private_data
                .cast::<Counted<ArrayRelease, *mut c_void>>(),
        );
        (*array).private_data = counted.private_data;
        (counted.release)(array);
    }
}

unsafe extern "C" fn release_schema(schema: *mut FFI_ArrowSchema) {
    RELEASED.with_borrow_mut(|released| released.schemas += 1);
    // SAFETY: `schema_that_counts` put it there.
    unsafe {
        let counted = Box::from_raw(
            (*schema)
                .private_data
                .cast::<Counted<SchemaRelease, *mut c_void>>(),
        );
        (*schema).private_data = counted.private_data;
        (counted.release)(schema);
    }
}

fn array_that_counts(data: &ArrayData) -> FFI_ArrowArray {
    let mut array = FFI_ArrowArray::new(data);
    let counted = Counted {
        release: array.release.unwrap(),
        private_data: array.private_data,
    };
    array.private_data = Box::into_raw(Box::new(counted)).cast();
    array.release = Some(release_array);
    array
}

fn schema_that_counts(data_type: &DataType) -> FFI_ArrowSchema {
    let field = Field::new("a name", data_type.clone(), true);
    let mut schema = FFI_ArrowSchema::try_from(&field).unwrap();
    let counted = Counted {
        release: schema.release.unwrap(),
        private_data: schema.private_data,
    };
    schema.private_data = Box::into_raw(Box::new(counted)).cast();
    schema.release = Some(release_schema);
    schema
}

fn take(
    schema: &mut FFI_ArrowSchema,
    array: &mut FFI_ArrowArray,
) -> Result<(Field, ArrayRef), ArrowError> {
    // SAFETY: what the tests change keeps every pointer good for the lengths beside it.
    unsafe { take_array(NonNull::from(schema), NonNull::from(array)) }
}

#[test]
fn every_type_comes_back_sliced_and_with_nulls() {
    for array in arrays() {
        for (offset, length) in [(0, 5), (1, 3), (3, 2), (2, 1), (0, 0), (4, 0)] {
            let sliced = array.slice(offset, length);
            let mut schema = schema_that_counts(array.data_type());
            let mut exported = array_that_counts(&sliced.to_data());
            let (field, taken) = take(&mut schema, &mut exported).unwrap();
            assert_eq!(field.name(), "a name");
            assert_eq!(&taken, &sliced, "{} {offset}..+{length}", array.data_type());
            assert!(exported.is_released());
            drop((schema, taken));
            let released = released();
            assert_eq!(
                (released.arrays, released.schemas),
                (1, 1),
                "{}",
                array.data_type()
            );
        }
    }
}

#[test]
fn a_buffer_outlives_the_rest_of_its_array() {
    let array: ArrayRef = Arc::new(StringArray::from_iter(WORDS));
    let mut exported = array_that_counts(&array.to_data());
    let (_, taken) = take(&mut schema_that_counts(array.data_type()), &mut exported).unwrap();
    let last = taken.slice(4, 1);
    drop((array, taken));
    assert_eq!(released().arrays, 0);
    let text = last.as_any().downcast_ref::<StringArray>().unwrap();
    assert_eq!(text.value(0), "ab");
    drop(last);
    assert_eq!(released().arrays, 1);
}

#[test]
fn an_array_of_no_rows_needs_no_buffers() {
    for array in arrays() {
        let mut exported = array_that_counts(&array.slice(0, 0).to_data());
        for place in 0..exported.num_buffers() {
            // SAFETY: there are so many.
            unsafe { *exported.buffers.add(place) = std::ptr::null() };
        }
        let (_, taken) = take(&mut schema_that_counts(array.data_type()), &mut exported).unwrap();
        assert_eq!(taken.len(), 0);
        assert_eq!(taken.data_type(), array.data_type());
    }
    assert_eq!(released().arrays, arrays().len());
}

#[test]
fn buffers_need_no_alignment() {
    let array: ArrayRef = Arc::new(BinaryArray::from_iter(bytes()));
    let mut exported = array_that_counts(&array.to_data());
    let offsets: Vec<u8> = [0_i32, 1, 25, 25, 25, 27]
        .iter()
        .flat_map(|offset| offset.to_ne_bytes())
        .collect();
    let mut moved = vec![0_u64; 4];
    let start = moved.as_mut_ptr().cast::<u8>();
    // SAFETY: 25 of 32 bytes are written, and the second buffer is that of the offsets.
    unsafe {
        start.add(1).copy_from(offsets.as_ptr(), offsets.len());
        *exported.buffers.add(1) = start.add(1).cast();
    }
    let (_, taken) = take(&mut schema_that_counts(array.data_type()), &mut exported).unwrap();
    drop(moved);
    assert_eq!(&taken, &array);
}

#[test]
fn what_is_no_text_is_replaced() {
    let rows: [Option<&[u8]>; 4] = [Some(b"b\xffb"), None, Some(b"ok"), Some(b"\xe2\x82")];
    let wanted = [Some("b\u{fffd}b"), None, Some("ok"), Some("\u{fffd}")];
    let texts: [(ArrayRef, ArrayRef); 3] = [
        (
            Arc::new(BinaryArray::from_iter(rows)),
            Arc::new(StringArray::from_iter(wanted)),
        ),
        (
            Arc::new(LargeBinaryArray::from_iter(rows)),
            Arc::new(LargeStringArray::from_iter(wanted)),
        ),
        (
            Arc::new(arrow_array::BinaryViewArray::from_iter(rows)),
            Arc::new(StringViewArray::from_iter(wanted)),
        ),
    ];
    for (bytes, text) in texts {
        let mut exported = array_that_counts(&bytes.to_data());
        let (_, taken) = take(&mut schema_that_counts(text.data_type()), &mut exported).unwrap();
        assert_eq!(&taken, &text);
        drop(taken);
        assert_eq!(released().arrays, 1);
    }
}

/// How an array lies, what it is called, and which part of the error names it.
type Lie = (&'static str, fn(&mut FFI_ArrowArray), &'static str);

const LIES: [Lie; 14] = [
    (
        "was released",
        |a| drop(std::mem::replace(a, FFI_ArrowArray::empty())),
        "was released",
    ),
    ("negative length", |a| a.length = -1, "has -1 as its length"),
    (
        "length",
        |a| a.length = i64::MAX,
        "rows: 2147483647 at most",
    ),
    ("negative offset", |a| a.offset = -1, "has -1 as its offset"),
    (
        "negative buffers",
        |a| a.n_buffers = -1,
        "has -1 as its buffer count",
    ),
    ("a buffer less", |a| a.n_buffers -= 1, "has 2 buffers"),
    ("a buffer more", |a| a.n_buffers += 1, "has 4 buffers"),
    ("no buffers", |a| a.buffers = null_mut(), "has 3 buffers"),
    ("no offsets", |a| set(a, 1, null_mut()), "lacks buffer 1"),
    ("no values", |a| set(a, 2, null_mut()), "lacks buffer 2"),
    (
        "nulls nowhere",
        |a| set(a, 0, null_mut()),
        "has 1 nulls and does not say where",
    ),
    (
        "fewer nulls",
        |a| a.null_count = 0,
        "claims 0 nulls and marks 1",
    ),
    (
        "less than no nulls",
        |a| a.null_count = -2,
        "claims -2 nulls and marks 1",
    ),
    ("children", |a| a.n_children = 1, "has 1 children"),
];

fn set(array: &mut FFI_ArrowArray, place: usize, buffer: *mut c_void) {
    // SAFETY: the arrays of these tests have the buffer.
    unsafe { *array.buffers.add(place) = buffer };
}

#[test]
fn arrays_that_lie_are_refused_and_released() {
    for (name, lie, reason) in LIES {
        let array = BinaryArray::from_iter(bytes());
        let mut exported = array_that_counts(&array.to_data());
        lie(&mut exported);
        let error = take(&mut schema_that_counts(array.data_type()), &mut exported).unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
        assert_eq!(released().arrays, 1, "{name}");
    }
}

fn refused(array: &dyn Array, lie: impl Fn(&mut FFI_ArrowArray), reason: &str) {
    let mut exported = array_that_counts(&array.to_data());
    lie(&mut exported);
    let error = take(&mut schema_that_counts(array.data_type()), &mut exported).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
    assert_eq!(released().arrays, 1, "{reason}");
}

fn refused_with_buffer<T>(array: &dyn Array, place: usize, mut buffer: Vec<T>, reason: &str) {
    let start: *mut c_void = buffer.as_mut_ptr().cast();
    refused(array, |a| set(a, place, start), reason);
}

#[test]
fn offsets_stay_within_their_values_and_ascend() {
    let binary = BinaryArray::from_iter(bytes());
    let long = LargeBinaryArray::from_iter(bytes());
    refused_with_buffer(&binary, 1, vec![0_i32, 1, 0, 25, 25, 27], "offset");
    refused_with_buffer(&binary, 1, vec![-1_i32, 1, 25, 25, 25, 27], "offset");
    refused_with_buffer(
        &binary,
        1,
        vec![0_i32, 1, 25, 25, 25, -27],
        "has -27 as its last offset",
    );
    refused_with_buffer(&binary, 1, vec![0_i32, 1, 28, 25, 25, 27], "offset");
    refused_with_buffer(&long, 1, vec![0_i64, 1, 0, 25, 25, 27], "offset");
    refused_with_buffer(
        &long,
        1,
        vec![0_i64, 1, 25, 25, 25, i64::MIN],
        "as its last offset",
    );
    let lists = &arrays()[14];
    refused_with_buffer(lists, 1, vec![0_i32, 0, 1, 3, 3, 5], "offset");
    refused_with_buffer(lists, 1, vec![0_i32, 0, 1, 0, 3, 4], "offset");
}

#[test]
fn keys_and_views_point_to_what_is_there() {
    let dictionary = &arrays()[13];
    refused_with_buffer(dictionary, 1, vec![0_i8, 1, 9, 2, 99], "out of bounds");
    refused_with_buffer(dictionary, 1, vec![0_i8, 1, 9, 2, -1], "out of bounds");
    let views = &arrays()[9];
    let long = |buffer: u128, offset: u128| 24 | 0x61_u128 << 32 | buffer << 64 | offset << 96;
    refused_with_buffer(views, 1, vec![long(1, 0); 5], "buffer");
    refused_with_buffer(views, 1, vec![long(0, 9); 5], "buffer");
    refused_with_buffer(views, 3, vec![-1_i64], "has -1 as its buffer length");
    refused(&**views, |a| set(a, 3, null_mut()), "lacks buffer 3");
}

#[test]
fn children_are_there_and_have_the_rows() {
    let all = arrays();
    let of = |kind: &str| {
        let found = all
            .iter()
            .find(|array| array.data_type().to_string().starts_with(kind));
        found
            .unwrap_or_else(|| panic!("no array of type {kind}"))
            .to_data()
    };
    let (lists, structs, maps) = (of("List"), of("Struct"), of("Map"));
    let (pairs, dictionary) = (of("FixedSizeList"), of("Dictionary"));
    let shorten = |place: usize, rows: i64| {
        // SAFETY: it has the child.
        move |array: &mut FFI_ArrowArray| unsafe { (**array.children.add(place)).length = rows }
    };
    let take_out = |place: usize| {
        move |array: &mut FFI_ArrowArray| {
            // SAFETY: it has the child.
            let child = unsafe { &mut **array.children.add(place) };
            drop(std::mem::replace(child, FFI_ArrowArray::empty()));
        }
    };
    for data in [&lists, &structs, &maps, &pairs] {
        let array = make_array(data.clone());
        refused(&array, |a| a.n_children -= 1, "children");
        refused(&array, |a| a.n_children += 1, "children");
        refused(&array, |a| a.n_children = -1, "has -1 children");
        refused(&array, |a| a.children = null_mut(), "child 0 is missing");
        refused(&array, take_out(0), "was released");
    }
    let (structs, pairs) = (make_array(structs), make_array(pairs));
    refused(&structs, shorten(0, 4), "fewer rows than it needs");
    refused(&structs, |a| a.offset = 1, "fewer rows than it needs");
    refused(&pairs, |a| a.offset = 1, "fewer rows than it needs");
    let dictionary = make_array(dictionary);
    refused(
        &dictionary,
        |array| array.dictionary = null_mut(),
        "has no dictionary",
    );
    let mut values = FFI_ArrowArray::new(&StringArray::from_iter(WORDS).to_data());
    let values: *mut FFI_ArrowArray = &mut values;
    let binary = BinaryArray::from_iter(bytes());
    refused(
        &binary,
        |array| array.dictionary = values,
        "has a dictionary",
    );
}

#[test]
fn rows_of_fixed_width_fit_into_memory() {
    let fixed = &arrays()[6];
    let mut exported = array_that_counts(&fixed.to_data());
    (exported.length, exported.offset) = (i64::from(i32::MAX), i64::MAX - i64::from(i32::MAX));
    let mut schema = schema_that_counts(&DataType::FixedSizeBinary(i32::MAX));
    let error = take(&mut schema, &mut exported).unwrap_err().to_string();
    assert!(
        error.contains("claims more bytes than memory has"),
        "{error}"
    );
}

/// How a schema lies, and which part of the error names it.
type SchemaLie = (fn(&mut FFI_ArrowSchema), &'static str);

const SCHEMA_LIES: [SchemaLie; 11] = [
    (|s| s.format = null_mut(), "has no format"),
    (|s| s.format = c"\xff".as_ptr(), "format is no UTF-8"),
    (|s| s.name = c"\xff".as_ptr(), "name is no UTF-8"),
    (|s| s.n_children = -1, "has -1 fields"),
    (|s| s.n_children = i64::MAX, "fields: 0 to 65536"),
    (|s| s.n_children = 1, "child 0 is missing"),
    (|s| s.format = c"w:-1".as_ptr(), "has a negative size"),
    (|s| s.format = c"w:x".as_ptr(), "integer"),
    (|s| s.format = c"quux".as_ptr(), "quux"),
    (|s| s.format = c"+l".as_ptr(), "has 0 fields: 1 to 65536"),
    (|s| s.format = c"+r".as_ptr(), "has 0 fields: 2 to 65536"),
];

#[test]
fn schemas_that_lie_are_refused_and_the_array_released() {
    for (lie, reason) in SCHEMA_LIES {
        let array = BinaryArray::from_iter(bytes());
        let mut exported = array_that_counts(&array.to_data());
        let mut schema = schema_that_counts(array.data_type());
        let (format, name) = (schema.format, schema.name);
        let (children, count) = (schema.children, schema.n_children);
        if reason.starts_with("child") {
            schema.children = null_mut();
        }
        lie(&mut schema);
        let error = take(&mut schema, &mut exported).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        // What releases a schema frees the texts that it finds.
        (schema.format, schema.name) = (format, name);
        (schema.children, schema.n_children) = (children, count);
        drop((schema, exported));
        let released = released();
        assert_eq!((released.arrays, released.schemas), (1, 1), "{reason}");
    }
}

#[test]
fn a_type_ends() {
    let array = arrays()[14].clone();
    let mut schema = schema_that_counts(array.data_type());
    // SAFETY: a list has one child.
    let child = unsafe { *schema.children };
    // SAFETY: as above.
    unsafe { *schema.children = &mut schema };
    let mut exported = array_that_counts(&array.to_data());
    let error = take(&mut schema, &mut exported).unwrap_err().to_string();
    // SAFETY: as above.
    unsafe { *schema.children = child };
    assert!(error.contains("nested more than 64 deep"), "{error}");
}

#[test]
fn types_that_nothing_here_has_are_refused() {
    let item = || Arc::new(Field::new("item", DataType::Int32, true));
    let types = [
        DataType::ListView(item()),
        DataType::LargeListView(item()),
        DataType::RunEndEncoded(item(), item()),
        DataType::Dictionary(Box::new(DataType::Utf8), Box::new(DataType::Utf8)),
        DataType::List(Arc::new(Field::new(
            "item",
            DataType::ListView(item()),
            true,
        ))),
    ];
    for data_type in types {
        let mut exported = array_that_counts(&BinaryArray::from_iter(bytes()).to_data());
        let error = take(&mut schema_that_counts(&data_type), &mut exported).unwrap_err();
        assert!(error.to_string().contains("is not read here"), "{error}");
    }
}

/// What a stream gives, one after the other.
struct Chunks {
    data_type: DataType,
    rest: Mutex<VecDeque<Result<FFI_ArrowArray, Option<CString>>>>,
    failure: Option<CString>,
}

fn chunks_of<'a>(stream: *mut FFI_ArrowArrayStream) -> &'a mut Chunks {
    // SAFETY: `stream_of` put it there.
    unsafe { &mut *(*stream).private_data.cast() }
}

unsafe extern "C" fn get_schema(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: `take_stream` has room for a schema.
    unsafe { out.write(schema_that_counts(&chunks_of(stream).data_type)) };
    0
}

unsafe extern "C" fn get_next(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowArray,
) -> c_int {
    let chunks = chunks_of(stream);
    match chunks.rest.get_mut().unwrap().pop_front() {
        // SAFETY: `take_stream` has room for an array.
        Some(Ok(array)) => unsafe { out.write(array) },
        Some(Err(failure)) => {
            chunks.failure = failure;
            return 5;
        }
        None => {}
    }
    0
}

unsafe extern "C" fn get_last_error(stream: *mut FFI_ArrowArrayStream) -> *const c_char {
    let failure = chunks_of(stream).failure.as_ref();
    failure.map_or(std::ptr::null(), |failure| failure.as_ptr())
}

unsafe extern "C" fn release_stream(stream: *mut FFI_ArrowArrayStream) {
    RELEASED.with_borrow_mut(|released| released.streams += 1);
    // SAFETY: `stream_of` put it there.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Chunks>()));
        (*stream).release = None;
    }
}

fn stream_of(chunks: Vec<Result<FFI_ArrowArray, Option<CString>>>) -> FFI_ArrowArrayStream {
    let chunks = Chunks {
        data_type: DataType::Binary,
        rest: Mutex::new(chunks.into()),
        failure: None,
    };
    FFI_ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(chunks)).cast(),
    }
}

fn take_all(stream: &mut FFI_ArrowArrayStream) -> Result<(Field, Vec<ArrayRef>), ArrowError> {
    // SAFETY: it is a stream of arrays.
    unsafe { take_stream(NonNull::from(stream)) }
}

fn chunk(array: &dyn Array) -> Result<FFI_ArrowArray, Option<CString>> {
    Ok(array_that_counts(&array.to_data()))
}

#[test]
fn a_stream_gives_its_chunks() {
    let array = BinaryArray::from_iter(bytes());
    for count in [0, 1, 3] {
        let mut stream = stream_of((0..count).map(|_| chunk(&array)).collect());
        let (field, chunks) = take_all(&mut stream).unwrap();
        assert!(stream.release.is_none());
        assert_eq!(field.data_type(), &DataType::Binary);
        assert_eq!(chunks.len(), count);
        assert!(chunks.iter().all(|chunk| **chunk == array));
        drop(chunks);
        let released = released();
        assert_eq!(
            (released.streams, released.schemas, released.arrays),
            (1, 1, count)
        );
    }
}

#[test]
fn a_stream_that_fails_is_released_with_its_chunks() {
    let array = BinaryArray::from_iter(bytes());
    let mut lies = array_that_counts(&array.to_data());
    lies.length = -1;
    let failures = [
        (
            Err(Some(c"the disk is gone".to_owned())),
            "the disk is gone",
            1,
        ),
        (Err(None), "does not say why", 1),
        (Ok(lies), "has -1 as its length", 2),
    ];
    for (failure, reason, arrays) in failures {
        let mut stream = stream_of(vec![chunk(&array), failure]);
        let error = take_all(&mut stream).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let released = released();
        assert_eq!((released.streams, released.arrays), (1, arrays), "{reason}");
    }
}

#[test]
fn a_stream_that_was_released_or_lacks_a_function_is_refused() {
    let mutations: [fn(&mut FFI_ArrowArrayStream); 3] = [
        |stream| drop(std::mem::replace(stream, FFI_ArrowArrayStream::empty())),
        |stream| stream.get_schema = None,
        |stream| stream.get_next = None,
    ];
    for mutate in mutations {
        let mut stream = stream_of(Vec::new());
        mutate(&mut stream);
        let error = take_all(&mut stream).unwrap_err().to_string();
        assert!(
            error.contains("the stream was released, or lacks a function"),
            "{error}"
        );
        assert_eq!(released().streams, 1);
    }
}

#[test]
fn values_of_a_scalar_buffer_are_read_in_place() {
    let values = ScalarBuffer::from(vec![1_i64, 2, 3]);
    let start = values.as_ptr();
    let array = Int64Array::new(values, None);
    let mut exported = array_that_counts(&array.to_data());
    let (_, taken) = take(&mut schema_that_counts(&DataType::Int64), &mut exported).unwrap();
    let taken = taken.as_any().downcast_ref::<Int64Array>().unwrap();
    assert_eq!(taken.values().as_ptr(), start);
}
