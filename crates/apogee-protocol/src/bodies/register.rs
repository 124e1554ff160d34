//! The binary, compressed form of a registration.
//!
//! ```text
//! zlib stream of (lengths and counts 4 bytes, big endian):
//!   length, DataVersion as JSON
//!   count of topics, each: length, text "name readQueues writeQueues perm filterType attributesJson"
//!   length, filter server list as JSON
//!   count of mappings, each: length, TopicQueueMappingInfo as JSON      (left out by old brokers)
//! ```
//!
//! Always holds: the stream is inflated up to a limit, and every length is compared with the bytes that are
//! there. `order` and `topicSysFlag` of a topic are not in this form.

use super::json::{BodyError, JsonBody};
use super::route::{
    RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicFilterType,
};
use bytes::{BufMut, BytesMut};
use std::io::{Read, Write};

/// Largest inflated registration: some 400,000 topics.
pub const MAX_INFLATED_BYTES: u64 = 64 * 1024 * 1024;

impl RegisterBrokerBody {
    /// Reads a registration: JSON, or the binary form when `compressed`.
    ///
    /// # Errors
    /// When the body is neither, or inflates beyond [`MAX_INFLATED_BYTES`].
    pub fn decode(body: &[u8], compressed: bool) -> Result<Self, BodyError> {
        if !compressed {
            return RegisterBrokerBody::from_json(body);
        }
        let inflated = inflate(body, MAX_INFLATED_BYTES)?;
        let mut rest = inflated.as_slice();
        let mut wrapper = TopicConfigAndMappingSerializeWrapper {
            data_version: JsonBody::from_json(piece(&mut rest, "data version")?)?,
            ..Default::default()
        };
        for _ in 0..length(&mut rest, "topic count")? {
            let config = topic_from_text(piece(&mut rest, "topic")?)?;
            wrapper.topic_config_table.insert(config.topic_name.clone(), config);
        }
        let filter_server_list = JsonBody::from_json(piece(&mut rest, "filter servers")?)?;
        let mappings = if rest.is_empty() { 0 } else { length(&mut rest, "mapping count")? };
        for _ in 0..mappings {
            let info =
                super::route::TopicQueueMappingInfo::from_json(piece(&mut rest, "mapping")?)?;
            let topic = info.topic.clone().unwrap_or_default();
            wrapper.topic_queue_mapping_info_map.insert(topic, info);
        }
        Ok(RegisterBrokerBody { filter_server_list, topic_config_serialize_wrapper: wrapper })
    }

    /// Writes a registration: JSON, or the binary form when `compressed`.
    pub fn encode(&self, compressed: bool) -> Vec<u8> {
        if !compressed {
            return self.to_raw();
        }
        let wrapper = &self.topic_config_serialize_wrapper;
        let mut plain = BytesMut::new();
        put_piece(&wrapper.data_version.to_raw(), &mut plain);
        plain.put_u32(wrapper.topic_config_table.len() as u32);
        for config in wrapper.topic_config_table.values() {
            put_piece(topic_to_text(config).as_bytes(), &mut plain);
        }
        put_piece(&self.filter_server_list.to_raw(), &mut plain);
        plain.put_u32(wrapper.topic_queue_mapping_info_map.len() as u32);
        for info in wrapper.topic_queue_mapping_info_map.values() {
            put_piece(&info.to_raw(), &mut plain);
        }
        let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        // Writing into memory does not fail.
        let written = stream.write_all(&plain).and_then(|()| stream.finish());
        written.unwrap_or_default()
    }
}

fn inflate(body: &[u8], max: u64) -> Result<Vec<u8>, BodyError> {
    let mut inflated = Vec::new();
    let mut stream = flate2::read::ZlibDecoder::new(body).take(max + 1);
    stream.read_to_end(&mut inflated).map_err(|_| BodyError::Binary("zlib stream"))?;
    if inflated.len() as u64 > max {
        return Err(BodyError::Binary("size when inflated"));
    }
    Ok(inflated)
}

fn length(rest: &mut &[u8], what: &'static str) -> Result<usize, BodyError> {
    let (word, tail) = rest.split_first_chunk::<4>().ok_or(BodyError::Binary(what))?;
    *rest = tail;
    usize::try_from(i32::from_be_bytes(*word)).map_err(|_| BodyError::Binary(what))
}

fn piece<'a>(rest: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], BodyError> {
    let len = length(rest, what)?;
    let (piece, tail) = rest.split_at_checked(len).ok_or(BodyError::Binary(what))?;
    *rest = tail;
    Ok(piece)
}

fn put_piece(piece: &[u8], out: &mut BytesMut) {
    out.put_u32(piece.len() as u32);
    out.put_slice(piece);
}

fn topic_to_text(config: &TopicConfig) -> String {
    let attributes = String::from_utf8(config.attributes.to_raw()).unwrap_or_default();
    let TopicConfig {
        topic_name, read_queue_nums, write_queue_nums, perm, topic_filter_type, ..
    } = config;
    format!(
        "{topic_name} {read_queue_nums} {write_queue_nums} {perm} {} {attributes}",
        topic_filter_type.name()
    )
}

fn topic_from_text(text: &[u8]) -> Result<TopicConfig, BodyError> {
    let wrong = || BodyError::Binary("topic text");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let mut words = text.splitn(6, ' ');
    let mut word = || words.next().ok_or_else(wrong);
    let number = |word: &str| word.parse::<i32>().map_err(|_| wrong());
    Ok(TopicConfig {
        topic_name: word()?.to_owned(),
        read_queue_nums: number(word()?)?,
        write_queue_nums: number(word()?)?,
        perm: number(word()?)?,
        topic_filter_type: TopicFilterType::from_name(word()?).ok_or_else(wrong)?,
        // Old brokers end here.
        attributes: match words.next() {
            Some(attributes) if !attributes.is_empty() => {
                JsonBody::from_json(attributes.as_bytes())?
            }
            _ => Default::default(),
        },
        ..TopicConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RegisterBrokerBody {
        let mut body =
            RegisterBrokerBody { filter_server_list: vec!["f:1".to_owned()], ..Default::default() };
        let wrapper = &mut body.topic_config_serialize_wrapper;
        wrapper.data_version.counter = 7;
        for name in ["TopicA", "TopicB"] {
            let mut config = TopicConfig {
                topic_name: name.to_owned(),
                read_queue_nums: 4,
                ..Default::default()
            };
            config.attributes.insert("message.type".to_owned(), "FIFO x".to_owned());
            wrapper.topic_config_table.insert(name.to_owned(), config);
        }
        let mut info = super::super::route::TopicQueueMappingInfo {
            topic: Some("TopicA".to_owned()),
            ..Default::default()
        };
        info.curr_id_map.insert(0, 3);
        wrapper.topic_queue_mapping_info_map.insert("TopicA".to_owned(), info);
        body
    }

    #[test]
    fn both_forms_read_back() {
        assert_eq!(RegisterBrokerBody::decode(&sample().encode(true), true).unwrap(), sample());
        assert_eq!(RegisterBrokerBody::decode(&sample().encode(false), false).unwrap(), sample());
    }

    #[test]
    fn cut_bodies_and_lying_lengths_are_refused() {
        let whole = sample().encode(true);
        for len in 0..whole.len() - 4 {
            assert!(RegisterBrokerBody::decode(&whole[..len], true).is_err(), "{len}");
        }
        for lie in [-1, i32::MAX] {
            let mut stream =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            stream.write_all(&lie.to_be_bytes()).unwrap();
            assert!(RegisterBrokerBody::decode(&stream.finish().unwrap(), true).is_err());
        }
    }

    #[test]
    fn a_body_that_inflates_beyond_the_limit_is_refused() {
        let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        stream.write_all(&[0; 4096]).unwrap();
        let bomb = stream.finish().unwrap();
        assert_eq!(inflate(&bomb, 4096).unwrap().len(), 4096);
        assert!(inflate(&bomb, 4095).is_err());
    }
}
