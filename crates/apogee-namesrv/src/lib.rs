//! Name server: the route table and its requests.
