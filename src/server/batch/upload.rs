//! Upload of a file: a form that is read piece by piece and stored in chunks of whole lines (faults O31, O37).
//!
//! Remembers: one chunk, or one line that is longer. Never: holds the file, or shows a part of it to anybody.

use super::files::file_object;
use super::{at_limit, failure_of, open_store};
use crate::request::batch::expiry;
use crate::request::form::{FormEvent, FormReader};
use crate::request::invalid;
use crate::server::admit::body::{Body, BodyTimers};
use crate::server::admit::budget::BudgetShare;
use crate::server::admitted::Admitted;
use crate::server::headers;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::store::{
    FileChunk, FileLimits, FilePurpose, Key, Millis, NewFile, Store, StoreError, StoredFile,
};
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_TYPE;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Size from which lines make a chunk, in bytes.
const CHUNK: usize = 256 << 10;
/// Longest value of a field that is no file, and longest file name, in bytes.
const FIELD: usize = 1_024;
/// Most bytes of the form around the file.
const AROUND: u64 = 64 << 10;
/// Attempts to store a chunk, and the pause between two.
const TRIES: (usize, Duration) = (3, Duration::from_millis(250));

/// Stores an uploaded file. Fails if the form or a field is invalid, a limit is reached, or the store fails;
/// nothing of the file stays then.
pub(super) async fn upload_file(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let (app, head) = (admitted.app, admitted.head);
    headers::check_relayed(&head.headers)?;
    let label = head
        .headers
        .get(CONTENT_TYPE)
        .and_then(|label| label.to_str().ok())
        .unwrap_or_default();
    let form = FormReader::of(label).ok_or_else(|| {
        let message = "The request body must be multipart/form-data.";
        Failure::from(Fault::UnsupportedMediaType).with_message(message)
    })?;
    let store = open_store(admitted)?;
    let id = format!("file-{}", admitted.ids.stamp().id);
    let key = Key {
        tenant: admitted.tenant(),
        id: id.into(),
    };
    let mut upload = FileUpload {
        store: Arc::clone(&store),
        key: key.clone(),
        share: app.admit.budget.share(0)?,
        limits: app.config.batch.file_limits(),
        most: app.config.batch.max_file_bytes,
        longest: app.config.limits.max_body_bytes,
        admitted,
        pending: BytesMut::new(),
        searched: 0,
        place: 0,
        lines: 0,
        bytes: 0,
        begun: None,
        fields: FormFields::default(),
    };
    let stored = match upload.read(form, body.incoming.take()).await {
        Ok(()) => upload.finish().await,
        Err(failure) => Err(failure),
    };
    let (begun, bytes) = (upload.begun.is_some(), upload.bytes);
    drop(upload);
    reply.note(|record| record.has_taken(bytes));
    body.finish();
    body.unread = stored.is_err();
    let now = app.store_handle.now();
    // Files that this does not remove expire.
    if stored.is_err()
        && begun
        && let Err(error) = store.delete_file(key.clone(), now).await
    {
        tracing::warn!(file = &*key.id, %error, "a part of an upload was not removed");
    }
    stored.map(|file| reply.object(Bytes::from(file_object(&file))))
}

/// Fields of the form beside the file.
#[derive(Default)]
struct FormFields {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
}

/// Part of the form whose value is being read.
enum FormPart {
    File,
    Field(String, Vec<u8>),
}

/// Upload that is under way.
struct FileUpload<'c> {
    admitted: &'c Admitted<'c>,
    store: Arc<Store>,
    key: Key,
    /// Memory that the pending bytes take.
    share: BudgetShare,
    limits: FileLimits,
    /// Most bytes of the file.
    most: u64,
    /// Most bytes of a line.
    longest: usize,
    pending: BytesMut,
    /// Number of the pending bytes that have no line end.
    searched: usize,
    place: u64,
    lines: u64,
    bytes: u64,
    /// Name of the file, and the time of its creation, once the store knows it.
    begun: Option<(Arc<str>, Millis)>,
    fields: FormFields,
}

impl FileUpload<'_> {
    /// Reads the form and stores what is complete of the file.
    async fn read(&mut self, mut form: FormReader, body: Option<Incoming>) -> Result<(), Failure> {
        let app = &self.admitted.app;
        let mut timers = BodyTimers::new(&app.config.timeouts, Fault::InvalidJson);
        let mut sleep = pin!(sleep_until(Instant::now()));
        let mut body = body.unwrap_or_default();
        let (mut part, mut is_over, mut total) = (None, false, 0);
        loop {
            let data = tokio::select! {
                data = timers.next_piece(&mut body, sleep.as_mut()) => data?,
                () = app.cut() => return Err(Fault::Draining.into()),
            };
            let Some(data) = data else { break };
            total += data.len() as u64;
            if total > self.most.saturating_add(AROUND) {
                return Err(self.too_large());
            }
            // The library may hand over large pieces; the form is to hold little.
            for piece in data.chunks(CHUNK) {
                form.push(piece);
                while let Some(event) = form.event()? {
                    match event {
                        FormEvent::Part { name, file } => {
                            part = Some(self.begin_part(name, file).await?);
                        }
                        FormEvent::Data(data) => self.take(&mut part, &data).await?,
                        FormEvent::PartEnd => self.end_part(part.take())?,
                        FormEvent::End => is_over = true,
                    }
                }
            }
        }
        let cut = || Failure::from(Fault::InvalidRequest).with_message("The form breaks off.");
        if is_over { Ok(()) } else { Err(cut()) }
    }

    async fn begin_part(
        &mut self,
        name: String,
        file: Option<String>,
    ) -> Result<FormPart, Failure> {
        if name != "file" {
            return Ok(FormPart::Field(name, Vec::new()));
        }
        if self.begun.is_some() {
            return Err(invalid("file", "there may be only one"));
        }
        let name = file
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "upload".to_owned());
        if name.len() > FIELD || name.contains(char::is_control) {
            return Err(invalid(
                "file",
                "its name may have at most 1024 bytes, without control characters",
            ));
        }
        let (name, now) = (Arc::<str>::from(name), self.admitted.app.store_handle.now());
        let new = NewFile {
            key: self.key.clone(),
            name: Arc::clone(&name),
        };
        let created = self.store.create_file(new, self.limits, now).await;
        created.map_err(|error| self.failure(&error))?;
        self.begun = Some((name, now));
        Ok(FormPart::File)
    }

    fn end_part(&mut self, part: Option<FormPart>) -> Result<(), Failure> {
        let Some(FormPart::Field(name, value)) = part else {
            return Ok(());
        };
        let utf8 = || {
            invalid(
                name.chars().take(64).collect::<String>(),
                "it must be UTF-8",
            )
        };
        let value = Some(String::from_utf8(value).map_err(|_| utf8())?);
        match &*name {
            "purpose" => self.fields.purpose = value,
            "expires_after[anchor]" => self.fields.anchor = value,
            "expires_after[seconds]" => self.fields.seconds = value,
            _ => {}
        }
        Ok(())
    }

    async fn take(&mut self, part: &mut Option<FormPart>, data: &[u8]) -> Result<(), Failure> {
        match part {
            None => Ok(()),
            Some(FormPart::Field(_, value)) => {
                value.extend_from_slice(data);
                if value.len() > FIELD {
                    Err(Fault::TooLarge.into())
                } else {
                    Ok(())
                }
            }
            Some(FormPart::File) => {
                self.bytes += data.len() as u64;
                if self.bytes > self.most {
                    return Err(self.too_large());
                }
                self.pending.extend_from_slice(data);
                self.share.reach(self.pending.len())?;
                if self.pending.len() < CHUNK {
                    return Ok(());
                }
                // A line that comes in many small pieces is searched once.
                let fresh = self.pending.get(self.searched..).unwrap_or_default();
                let end = memchr::memrchr(b'\n', fresh).map(|end| self.searched + end);
                self.searched = self.pending.len() - end.map_or(0, |end| end + 1);
                match end {
                    Some(end) => self.store_chunk(end + 1).await,
                    None if self.pending.len() > self.longest + FIELD => {
                        let message = format!(
                            "Line {} is longer than limits.max_body_bytes.",
                            self.lines + 1
                        );
                        Err(at_limit(message).with_param("file"))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    fn too_large(&self) -> Failure {
        let message = format!(
            "A file may have at most {} bytes (batch.max_file_bytes).",
            self.most
        );
        Failure::from(Fault::TooLarge)
            .with_message(message)
            .with_param("file")
    }

    /// Stores the first `length` pending bytes, which are whole lines.
    async fn store_chunk(&mut self, length: usize) -> Result<(), Failure> {
        let bytes = self.pending.split_to(length);
        let text = simdutf8::basic::from_utf8(&bytes)
            .ok()
            .filter(|text| !text.contains('\0'));
        let Some(text) = text else {
            let message = format!(
                "The file must be text in UTF-8; what follows line {} is not.",
                self.lines
            );
            return Err(at_limit(message).with_param("file"));
        };
        let unfinished = u64::from(!text.ends_with('\n'));
        let lines = memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64 + unfinished;
        let chunk = FileChunk {
            place: self.place,
            first: self.lines,
            lines,
            body: text.into(),
        };
        self.place += 1;
        self.lines += lines;
        let mut tries = 0;
        loop {
            let now = self.admitted.app.store_handle.now();
            match self
                .store
                .append_chunk(self.key.clone(), chunk.clone(), self.limits, now)
                .await
            {
                Err(StoreError::Slow | StoreError::Unavailable(_)) if tries < TRIES.0 => {
                    tries += 1;
                    tokio::time::sleep(TRIES.1).await;
                }
                stored => return stored.map_err(|error| self.failure(&error)),
            }
        }
    }

    /// Checks the fields and makes the file visible. Returns it.
    async fn finish(&mut self) -> Result<StoredFile, Failure> {
        let purpose = match self.fields.purpose.as_deref() {
            None => return Err(crate::request::missing("purpose")),
            Some("batch") => FilePurpose::Batch,
            Some("user_data") => FilePurpose::UserData,
            Some(_) => return Err(invalid("purpose", "it must be batch or user_data")),
        };
        let kept = *self.admitted.app.config.batch.retention;
        let kept = match (&self.fields.anchor, &self.fields.seconds) {
            (None, None) => kept,
            (anchor, seconds) => {
                let seconds = seconds.as_ref().and_then(|seconds| seconds.parse().ok());
                let seconds = expiry("expires_after", anchor.as_deref(), seconds)?;
                kept.min(Duration::from_secs(seconds))
            }
        };
        let (name, created) = self
            .begun
            .clone()
            .ok_or_else(|| crate::request::missing("file"))?;
        if self.bytes == 0 {
            return Err(invalid("file", "it is empty"));
        }
        if !self.pending.is_empty() {
            self.store_chunk(self.pending.len()).await?;
        }
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        let expires = self.admitted.app.store_handle.now().saturating_add(kept);
        let finished = self
            .store
            .finish_file(self.key.clone(), purpose, expires)
            .await;
        finished.map_err(|error| self.failure(&error))?;
        Ok(StoredFile {
            key: self.key.clone(),
            purpose,
            name,
            created,
            expires,
            bytes: self.bytes,
            lines: self.lines,
            chunks: self.place,
        })
    }

    fn failure(&self, error: &StoreError) -> Failure {
        if *error == StoreError::Full {
            let message = "There is no room for this file: tenant_files, tenant_bytes or max_bytes of [batch] is reached, or the disk is full.";
            return at_limit(message.to_owned()).with_param("file");
        }
        failure_of(self.admitted, error, "File", &self.key.id)
    }
}
