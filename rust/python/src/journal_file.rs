//! The file of a journal: `_native.pyi`, "Journal".

use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::journal::{HEADER_BYTES, append_row, rows};
use shardwire_stub::documented;

use crate::buffer::Buffer;

/// The room that a file is made with; it is doubled with need.
const ROOM_BYTES_MIN: u64 = 64 << 10;
/// Of a file that is longer, and so none of ours, no more is read.
const READ_BYTES_MAX: u64 = 64 << 20;

/// It calls two functions of the system.
const STACK_BYTES: usize = 128 << 10;

type Row<'py> = (u64, Bound<'py, PyBytes>);

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct Wake {
    watched: UnixStream,
    /// A socket rather than a pipe: to write to one that nobody reads any more is no signal.
    told: Arc<UnixStream>,
}

#[documented]
#[pymethods]
impl Wake {
    #[new]
    fn new() -> PyResult<Self> {
        let pair = || {
            let (watched, told) = UnixStream::pair()?;
            watched.set_nonblocking(true)?;
            // One that is full can be read already.
            told.set_nonblocking(true)?;
            Ok((watched, told))
        };
        let (watched, told) = pair().map_err(|error| os_error(error, None))?;
        Ok(Wake {
            watched,
            told: Arc::new(told),
        })
    }

    fn fileno(&self) -> i32 {
        self.watched.as_raw_fd()
    }

    fn clear(&self) {
        while (&self.watched)
            .read(&mut [0; 64])
            .is_ok_and(|count| count > 0)
        {}
    }
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct JournalFile {
    path: PathBuf,
    database: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: Option<Arc<File>>,
    token: Vec<u8>,
    /// Where the next row goes.
    position: u64,
    /// Up to where a row that is written over what is there takes no further room of the disk.
    room: u64,
    /// Whether its name survives a power cut.
    is_in_directory: bool,
    /// Which file the database was at first.
    database: Option<(u64, u64)>,
    writer: Option<Writer>,
    /// Where the row that is being written ends.
    begun: Option<u64>,
}

#[documented]
#[pymethods]
impl JournalFile {
    #[new]
    fn new(path: PathBuf, database: PathBuf) -> Self {
        JournalFile {
            path,
            database,
            state: Mutex::new(State {
                file: None,
                token: Vec::new(),
                position: 0,
                room: 0,
                is_in_directory: false,
                database: None,
                writer: None,
                begun: None,
            }),
        }
    }

    #[getter]
    fn exists(&self) -> bool {
        self.state().file.is_some() || self.path.exists()
    }

    #[getter]
    fn is_in_place(&self) -> bool {
        self.state().is_in_place(&self.path)
    }

    fn read<'py>(&self, py: Python<'py>, token: Buffer<'_>, after: u64) -> PyResult<Vec<Row<'py>>> {
        let token = token.into_backed();
        // Whoever waits for the state may have the interpreter: it is not asked for while the state is locked.
        let content = py
            .detach(|| self.content(&token))
            .map_err(|error| self.error(error))?;
        let (found, end) = rows_of(py, &content, &token, after);
        let mut state = self.state();
        state.position = end;
        state.room = content.len() as u64;
        Ok(found)
    }

    fn restart(&self, token: Buffer<'_>) {
        self.state().restart(token.as_bytes());
    }

    fn append(&self, py: Python<'_>, number: u64, body: Buffer<'_>) -> PyResult<()> {
        let body = body.into_backed();
        py.detach(|| {
            let mut state = self.state();
            state.give_up();
            let row = state.row(number, &body)?;
            state.append(&self.path, &row)?;
            if state.database.is_none() {
                state.database = identity(&self.database);
            }
            Ok(())
        })
        .map_err(|error| self.error(error))
    }

    fn begin(&self, number: u64, body: Buffer<'_>, wake: &Bound<'_, Wake>) -> PyResult<bool> {
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(false);
        };
        let Some(file) = state.file.clone() else {
            return Ok(false);
        };
        let row = state
            .row(number, body.as_bytes())
            .map_err(|error| self.error(error))?;
        let (at, end) = (state.position, state.position + row.len() as u64);
        let is_ready = state.begun.is_none() && state.is_in_directory && end <= state.room;
        if !is_ready || !state.is_in_place(&self.path) || identity(&self.database) != state.database
        {
            return Ok(false);
        }
        let request = Request {
            file,
            at,
            row,
            told: Arc::clone(&wake.get().told),
        };
        let writer = state.writer().map_err(|error| self.error(error))?;
        if writer.requests.send(request).is_err() {
            return Ok(false);
        }
        state.begun = Some(end);
        Ok(true)
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut state = self.state();
            let Some(end) = state.begun.take() else {
                return Ok(());
            };
            state.wait()?;
            state.position = end;
            Ok(())
        })
        .map_err(|error| self.error(error))
    }

    fn remove(&self) -> PyResult<()> {
        let mut state = self.state();
        state.give_up();
        // One that somebody put in its place stays.
        if state.file.is_none() || state.is_in_place(&self.path) {
            found(remove_file(&self.path)).map_err(|error| self.error(error))?;
        }
        state.close();
        Ok(())
    }

    fn close(&self) {
        self.state().close();
    }
}

impl JournalFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: io::Error) -> PyErr {
        os_error(error, Some(&self.path))
    }

    /// Of the file, which is begun with `token`; nothing where there is none.
    fn content(&self, token: &[u8]) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.give_up();
        if state.database.is_none() {
            state.database = identity(&self.database);
        }
        if state.file.is_none() {
            state.file =
                found(OpenOptions::new().read(true).write(true).open(&self.path))?.map(Arc::new);
            state.is_in_directory = false;
        }
        state.restart(token);
        state.room = 0;
        state
            .file
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |file| content_of(file))
    }
}

#[documented]
#[pyfunction]
pub fn read_journal<'py>(
    py: Python<'py>,
    path: PathBuf,
    token: Buffer<'_>,
    after: u64,
) -> PyResult<Vec<Row<'py>>> {
    let content = py
        .detach(|| {
            found(File::open(&path))?.map_or_else(|| Ok(Vec::new()), |file| content_of(&file))
        })
        .map_err(|error| os_error(error, Some(&path)))?;
    Ok(rows_of(py, &content, token.as_bytes(), after).0)
}

impl State {
    fn restart(&mut self, token: &[u8]) {
        self.token = token.to_vec();
        self.position = 0;
    }

    fn close(&mut self) {
        self.give_up();
        // The thread ends.
        self.writer = None;
        self.file = None;
        self.is_in_directory = false;
        self.room = 0;
        self.position = 0;
    }

    /// What was begun and is ended by nobody: the next row is written over it, and not before it is there.
    fn give_up(&mut self) {
        if self.begun.take().is_some() {
            let _ = self.wait();
        }
    }

    fn wait(&self) -> io::Result<()> {
        self.writer.as_ref().map_or(Ok(()), Writer::wait)
    }

    fn row(&self, number: u64, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut row = Vec::new();
        append_row(&mut row, &self.token, number, body).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(row)
    }

    fn append(&mut self, path: &Path, row: &[u8]) -> io::Result<()> {
        let file = self.made(path)?;
        let end = self.position + row.len() as u64;
        let room = room_for(end, self.room);
        let mut reached = self.room.max(end);
        write_row(&file, self.position, row, || {
            if room > end {
                // Zeros rather than a hole: what is written there later finds its blocks. A disk that has no room for
                // them may have some for the row.
                let zeros = vec![0; (room - reached) as usize];
                if file.write_all_at(&zeros, reached).is_ok() {
                    reached = room;
                }
            }
        })?;
        self.room = reached;
        self.position = end;
        Ok(())
    }

    fn made(&mut self, path: &Path) -> io::Result<Arc<File>> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .mode(0o600)
                    .open(path)?;
                // Whatever the umask takes away, its owner opens it again.
                let _ = file.set_permissions(PermissionsExt::from_mode(0o600));
                Arc::clone(self.file.insert(Arc::new(file)))
            }
        };
        if !self.is_in_directory {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            self.is_in_directory = true;
        }
        Ok(file)
    }

    fn is_in_place(&self, path: &Path) -> bool {
        let Some(file) = &self.file else {
            return true;
        };
        let own = file
            .metadata()
            .map(|metadata| (metadata.dev(), metadata.ino()));
        own.is_ok_and(|own| identity(path) == Some(own))
    }

    fn writer(&mut self) -> io::Result<&Writer> {
        if self.writer.is_none() {
            self.writer = Some(Writer::new()?);
        }
        self.writer.as_ref().ok_or(io::ErrorKind::Other.into())
    }
}

/// A thread that Python knows nothing of: it writes rows while the interpreter does something else.
struct Writer {
    requests: Sender<Request>,
    done: Arc<Done>,
}

struct Request {
    file: Arc<File>,
    at: u64,
    row: Vec<u8>,
    told: Arc<UnixStream>,
}

#[derive(Default)]
struct Done {
    outcome: Mutex<Option<io::Result<()>>>,
    changed: Condvar,
}

impl Writer {
    fn new() -> io::Result<Self> {
        let (requests, received) = channel();
        let done = Arc::new(Done::default());
        let outcomes = Arc::clone(&done);
        thread::Builder::new()
            .name("shardwire-journal".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || write_rows(received, &outcomes))?;
        Ok(Writer { requests, done })
    }

    /// Waits until the row is written that was sent last.
    fn wait(&self) -> io::Result<()> {
        let outcome = self
            .done
            .outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut outcome = self
            .done
            .changed
            .wait_while(outcome, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.take().unwrap_or(Ok(()))
    }
}

fn write_rows(requests: Receiver<Request>, done: &Done) {
    for request in requests {
        let outcome = write_row(&request.file, request.at, &request.row, || ());
        *done.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        done.changed.notify_all();
        // Nobody may read it any more.
        let _ = (&*request.told).write(&[0]);
    }
}

/// Durable when this returns. One that failed is no row for whoever reads the file now.
fn write_row(file: &File, at: u64, row: &[u8], before_sync: impl FnOnce()) -> io::Result<()> {
    let written = file.write_all_at(row, at).and_then(|()| {
        before_sync();
        file.sync_data()
    });
    if written.is_err() {
        let _ = file.write_all_at(&[0; HEADER_BYTES], at);
    }
    written
}

fn room_for(end: u64, room: u64) -> u64 {
    if end <= room {
        return room;
    }
    end.max(ROOM_BYTES_MIN).max(2 * room)
}

fn rows_of<'py>(py: Python<'py>, content: &[u8], token: &[u8], after: u64) -> (Vec<Row<'py>>, u64) {
    let mut found = rows(content, token, after);
    let bodies = found
        .by_ref()
        .map(|(number, body)| (number, PyBytes::new(py, body)))
        .collect();
    (bodies, found.end() as u64)
}

fn content_of(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len().min(READ_BYTES_MAX);
    let mut content = vec![0; size as usize];
    let mut read = 0;
    while read < content.len() {
        match file.read_at(&mut content[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(read);
    Ok(content)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// With its number, by which Python chooses the class, and the name of the file.
fn os_error(error: io::Error, path: Option<&Path>) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            PyOSError::new_err((
                number,
                text.to_owned(),
                path.map(|path| path.as_os_str().to_owned()),
            ))
        }
        None => PyOSError::new_err(error.to_string()),
    }
}
