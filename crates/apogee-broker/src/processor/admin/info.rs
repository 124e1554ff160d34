//! How the broker is: numbers for tools, settings, tidying on request.

use crate::dispatch::Context;
use crate::stats::Rates;
use apogee_protocol::bodies::{HARuntimeInfo, JsonBody, KVTable};
use apogee_protocol::{Response, ResponseCode};
use std::collections::BTreeMap;

type Handled = Result<Response, Response>;

/// The version that tools show.
const VERSION: &str = "V5_5_0";

/// GET_BROKER_RUNTIME_INFO: the original's keys, as far as they have a meaning here.
pub(crate) fn runtime(context: &Context<'_>) -> Handled {
    let mut table = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        table.insert(key.to_owned(), value);
    };
    add_store(context, &mut put);
    add_traffic(context, &mut put);
    add_lanes(context, &mut put);
    for (level, (offset, max)) in context.broker.delay_progress() {
        put(&format!("scheduleMessageOffset_{level}"), format!("{offset},{max}"));
    }
    Ok(Response::success().body(KVTable { table }.to_raw()))
}

fn add_store(context: &Context<'_>, put: &mut impl FnMut(&str, String)) {
    let (broker, now) = (context.broker, context.now);
    let store = &broker.store;
    let usage = store.disk_usage();
    put("brokerVersionDesc", VERSION.to_owned());
    put("brokerVersion", apogee_protocol::version::CURRENT.to_string());
    put("brokerActive", (!broker.is_closing()).to_string());
    put("bootTimestamp", broker.stats.started_ms.to_string());
    put("startAcceptSendRequestTimeStamp", "0".to_owned());
    put("runtime", span(now - broker.stats.started_ms));
    put("commitLogMinOffset", store.min_physical_offset().to_string());
    put("commitLogMaxOffset", store.max_physical_offset().to_string());
    put("commitLogDiskRatio", format!("{usage:.2}"));
    put("consumeQueueDiskRatio", format!("{usage:.2}"));
    put("dispatchBehindBytes", store.dispatch_behind_bytes().to_string());
    put("dispatchMaxBuffer", "0".to_owned());
    put("earliestMessageTimeStamp", store.earliest_time().unwrap_or(-1).to_string());
    let unflushed = store.max_physical_offset() - store.flushed().get();
    put("remainHowManyDataToFlush", format!("{} B", unflushed.max(0)));
    put("remainTransientStoreBufferNumbs", i32::MAX.to_string());
    put("pageCacheLockTimeMills", store.lock_held_ms(now).to_string());
}

fn add_traffic(context: &Context<'_>, put: &mut impl FnMut(&str, String)) {
    let stats = &context.broker.stats;
    let totals = stats.totals();
    let rates = [10, 60, 600].map(|seconds| stats.rates(seconds));
    let text = |pick: fn(&Rates) -> f64| {
        rates.iter().map(|rate| format!("{:?}", pick(rate))).collect::<Vec<_>>().join(" ")
    };
    put("putTps", text(|rate| rate.put));
    put("getFoundTps", text(|rate| rate.found));
    put("getMissTps", text(|rate| rate.missed));
    put("getTotalTps", text(|rate| rate.found + rate.missed));
    put("getTransferredTps", text(|rate| rate.got));
    put("putMessageTimesTotal", totals.put.messages.to_string());
    put("putMessageSizeTotal", totals.put.bytes.to_string());
    put("putMessageFailedTimes", totals.put_failed.to_string());
    let average = totals.put.bytes as f64 / totals.put.messages.max(1) as f64;
    put("putMessageAverageSize", format!("{average:?}"));
    put("putMessageDistributeTime", stats.put_classes());
    put("putMessageEntireTimeMax", stats.put_longest_ms().to_string());
    put("getMessageEntireTimeMax", stats.got_longest_ms().to_string());
    for (key, part) in [("putLatency99", 0.99), ("putLatency999", 0.999)] {
        put(key, format!("{:.2}", stats.put_quantile_ms(part) as f64));
    }
    let (mornings, now) = (stats.mornings(), stats.of_users());
    for (key, (puts, gets)) in [
        ("YesterdayMorning", mornings.yesterday),
        ("TodayMorning", mornings.today),
        ("TodayNow", now),
    ] {
        put(&format!("msgPutTotal{key}"), puts.to_string());
        put(&format!("msgGetTotal{key}"), gets.to_string());
    }
}

/// Sends and pulls are served as they are read, so nothing of them waits in a queue; parked pulls are
/// shown where the original shows its pull queue.
fn add_lanes(context: &Context<'_>, put: &mut impl FnMut(&str, String)) {
    let config = &context.broker.config;
    let lanes = [
        (
            "send",
            context.broker.flushing_sends(),
            context.broker.live.send_thread_pool_queue_capacity(),
        ),
        ("pull", context.broker.polling.len(), config.pull_thread_pool_queue_capacity),
        ("litePull", 0, config.pull_thread_pool_queue_capacity),
        ("query", 0, config.query_thread_pool_queue_capacity),
    ];
    for (name, size, capacity) in lanes {
        put(&format!("{name}ThreadPoolQueueSize"), size.to_string());
        put(&format!("{name}ThreadPoolQueueCapacity"), capacity.to_string());
        put(&format!("{name}ThreadPoolQueueHeadWaitTimeMills"), "0".to_owned());
    }
    // Tools read these although timers and transactions are not served here yet.
    for key in
        ["timerReadBehind", "timerOffsetBehind", "timerCongestNum", "EndTransactionQueueSize"]
    {
        put(key, "0".to_owned());
    }
    for key in ["timerEnqueueTps", "timerDequeueTps"] {
        put(key, "0.0".to_owned());
    }
}

fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    format!(
        "[ {} days, {} hours, {} minutes, {} seconds ]",
        hours / 24,
        hours % 24,
        minutes % 60,
        seconds % 60
    )
}

/// GET_BROKER_HA_STATUS: a master without replicas.
pub(crate) fn ha_status(context: &Context<'_>) -> Handled {
    let body = HARuntimeInfo {
        master: true,
        master_commit_log_max_offset: context.broker.store.max_physical_offset(),
        ..HARuntimeInfo::default()
    };
    Ok(Response::success().body(body.to_raw()))
}

fn clean(context: &Context<'_>) -> Handled {
    context.broker.store.request_cleaning();
    let done = context.broker.store.clean(context.now);
    done.map(|_| Response::success()).map_err(|error| {
        Response::error(ResponseCode::SYSTEM_ERROR, format!("cleaning failed: {error}"))
    })
}

/// CLEAN_EXPIRED_CONSUMEQUEUE.
pub(crate) fn clean_expired(context: &Context<'_>) -> Handled {
    clean(context)
}

/// DELETE_EXPIRED_COMMITLOG.
pub(crate) fn delete_expired(context: &Context<'_>) -> Handled {
    clean(context)
}

/// GET_ALL_DELAY_OFFSET.
pub(crate) fn delay_offsets(context: &Context<'_>) -> Handled {
    Ok(Response::success().body(context.broker.delay.wrapper().to_raw()))
}
