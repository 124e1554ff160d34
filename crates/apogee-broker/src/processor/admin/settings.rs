//! Showing the broker's settings and changing them while it runs.

use crate::dispatch::Context;
use crate::live::ChangeRefused;
use apogee_protocol::bodies::{JsonBody, read_properties, write_properties};
use apogee_protocol::headers::GetBrokerConfigResponseHeader;
use apogee_protocol::{Response, ResponseCode, Str};

type Handled = Result<Response, Response>;

/// GET_BROKER_CONFIG: every setting with its value, as a properties text.
pub(crate) fn get(context: &Context<'_>) -> Handled {
    let config = &context.broker.config;
    let mut all = config.settings.as_ref().map(|settings| settings.all()).unwrap_or_default();
    for (key, value) in &mut all {
        // Known only since the broker runs: a port of 0 was any free one, and a name server of the same
        // process is added.
        match key.as_str() {
            "listenPort" => *value = config.listen_port.to_string(),
            "namesrvAddr" => *value = config.namesrv_addr.join(";"),
            _ => {}
        }
    }
    let version = context.broker.live.version.lock().to_raw();
    let header = GetBrokerConfigResponseHeader {
        version: Str::from(String::from_utf8_lossy(&version).into_owned()),
    };
    let pairs = all.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Ok(Response::success().header(&header).body(write_properties(pairs)))
}

/// UPDATE_BROKER_CONFIG: all of it or nothing.
pub(crate) fn update(context: &Context<'_>) -> Handled {
    let (broker, by) = (context.broker, context.connection.peer());
    let invalid = |why: String| Response::error(ResponseCode::INVALID_PARAMETER, why);
    let text = std::str::from_utf8(&context.request.body)
        .map_err(|_| invalid("the body is no UTF-8 text".to_owned()))?;
    let pairs = read_properties(text);
    if pairs.is_empty() {
        // As the original: nothing asked, nothing done.
        return Ok(Response::success());
    }
    let Some(settings) = &broker.config.settings else {
        return Err(invalid("the settings of this broker are fixed".to_owned()));
    };
    // One change at a time, so that what is applied last is what was saved last.
    let mut version = broker.live.version.lock();
    let changed = settings.change(&pairs).map_err(|refused| {
        let (code, why) = match refused {
            ChangeRefused::Forbidden(why) => (ResponseCode::NO_PERMISSION, why),
            ChangeRefused::Invalid(why) => (ResponseCode::INVALID_PARAMETER, why),
            ChangeRefused::NotSaved(why) => (ResponseCode::SYSTEM_ERROR, why),
        };
        tracing::warn!(%by, %why, "settings were not changed");
        Response::error(code, why)
    })?;
    let permission = broker.permission();
    broker.live.apply(&changed.broker);
    broker.topics.set_auto_create(changed.broker.auto_create_topic_enable);
    broker.groups.set_auto_create(changed.broker.auto_create_subscription_group);
    broker.store.set_retention(changed.retention);
    version.next(context.now, 0);
    drop(version);
    let keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
    tracing::info!(%by, ?keys, "settings were changed");
    for note in changed.notes {
        tracing::warn!(%by, "{note}");
    }
    if broker.permission() != permission {
        broker.topics.changed();
        broker.register_soon();
    }
    Ok(Response::success())
}
