//! The event streams as the API's description shows them: each event with its name, its id and the JSON document in its
//! `data`, as a reader of event streams hands it on.

use std::borrow::Cow;

use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type, extensions::Extensions, schema::Object},
};

use super::{events::SessionEvent, output::OutputRecord, shapes::OutputEnd};

type Schemas = Vec<(String, RefOr<Schema>)>;

/// Each event of a Session's stream.
pub(crate) struct SessionStreamEvent;

/// Each event of the stream of a Turn's output: some `output`, one `end`.
pub(crate) struct OutputStreamEvent;

impl PartialSchema for SessionStreamEvent {
    fn schema() -> RefOr<Schema> {
        let named = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The `type` in `data`."));
        event::<SessionEvent>(named, true).into()
    }
}

impl ToSchema for SessionStreamEvent {
    fn name() -> Cow<'static, str> {
        "SessionStreamEvent".into()
    }

    fn schemas(schemas: &mut Schemas) {
        describe::<SessionEvent>(schemas);
    }
}

impl PartialSchema for OutputStreamEvent {
    fn schema() -> RefOr<Schema> {
        let named = |name| {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some([name]))
        };
        let one = OneOfBuilder::new()
            .item(event::<OutputRecord<'_>>(named("output"), true))
            .item(event::<OutputEnd>(named("end"), false));
        one.into()
    }
}

impl ToSchema for OutputStreamEvent {
    fn name() -> Cow<'static, str> {
        "OutputStreamEvent".into()
    }

    fn schemas(schemas: &mut Schemas) {
        describe::<OutputRecord<'_>>(schemas);
        describe::<OutputEnd>(schemas);
    }
}

fn describe<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

fn event<T: ToSchema>(name: ObjectBuilder, has_id: bool) -> Object {
    // JSON Schema's keyword for what a text holds, which the library has no member for.
    let holds = json!({ "$ref": format!("#/components/schemas/{}", T::name()) });
    let data = ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .extensions(Some(Extensions::from_iter([("contentSchema", holds)])));
    let event = ObjectBuilder::new()
        .property("event", name)
        .required("event")
        .property("data", data)
        .required("data");
    if !has_id {
        return event.build();
    }
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("For `Last-Event-ID`."));
    event.property("id", id).required("id").build()
}
