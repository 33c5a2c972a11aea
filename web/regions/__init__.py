"""The Regions page: where requests arrive, where they are served, and the links between the regions' gateways."""
